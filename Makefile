# zkflock - advisory file locks that hold across a cluster
# `make help` lists the targets.  CC, CFLAGS, LDFLAGS, DESTDIR and PREFIX are yours; your flags come last.
# SPDX-License-Identifier: Apache-2.0

VERSION := 0.1.0
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
CC ?= cc
# Where the loader's $LIB leads to, so that programs of 32 and of 64 bits find theirs under one name: Debian's multiarch
# directory, else lib64 or lib.
MULTIARCH := $(shell $(CC) $(CFLAGS) -print-multiarch 2>/dev/null)
LIBDIR ?= $(PREFIX)/$(if $(MULTIARCH),lib/$(MULTIARCH),$(if $(wildcard /usr/lib64/libc.so.6),lib64,lib))
UNITDIR ?= $(PREFIX)/lib/systemd/system
TMPFILESDIR ?= $(PREFIX)/lib/tmpfiles.d

# DEVELOPER=1 makes warnings errors.  SANITIZE=address,undefined (or thread) builds into a directory of its own.
DEVELOPER ?= 0
SANITIZE ?=
comma := ,
ifeq ($(SANITIZE),)
BUILD ?= build
else
BUILD ?= build-$(subst $(comma),-,$(SANITIZE))
PROGRAM_SANITIZE := -fsanitize=$(SANITIZE) -fno-omit-frame-pointer
# Other people's programs have no sanitizer's runtime: in the library undefined behaviour traps, and that is all.
LIBRARY_SANITIZE := $(if $(findstring undefined,$(SANITIZE)),-fsanitize=undefined -fsanitize-undefined-trap-on-error)
endif

WARNINGS := -Wall -Wextra -Wformat=2 -Wshadow -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wcast-qual \
	-Wstrict-prototypes -Wmissing-prototypes
ifeq ($(DEVELOPER),1)
WARNINGS += -Werror
endif
HARDENING := -fno-common -fvisibility=hidden -fstack-protector-strong
BASE_CFLAGS := -std=gnu11 -O2 -g $(WARNINGS) $(HARDENING) -MMD -MP -I. -D_GNU_SOURCE= -DHASH_NONFATAL_OOM=1 -DZKF_VERSION='"$(VERSION)"'
# Where it is going to be installed, for those few files that have to know: they are made again when it changes, and
# nothing else is.  ZKF_LOADER_PREFIX is empty where the loader's $LIB is not known to lead to LIBDIR.
places := -DZKF_LIBDIR='"$(LIBDIR)"' -DZKF_SBINDIR='"$(PREFIX)/sbin"' \
	-DZKF_LOADER_PREFIX='"$(if $(MULTIARCH),$(filter $(PREFIX),$(LIBDIR:/lib/$(MULTIARCH)=)))"'
placed := pic/preload/start obj/cli/run obj/cli/main obj/keeper/main obj/keeper/session
# FORTIFY pulls *_chk symbols in, which a musl or an older glibc has not: right for our programs, wrong for a library
# that is preloaded into other people's.
PROGRAM_CFLAGS := $(if $(SANITIZE),,-D_FORTIFY_SOURCE=2) -fPIE $(PROGRAM_SANITIZE)
LIBRARY_CFLAGS := -U_FORTIFY_SOURCE -fPIC $(LIBRARY_SANITIZE)
BASE_LDFLAGS := -Wl,-z,defs,-z,relro,-z,now

# Not name.c: the keeper makes the lock names, and libmd stays out of other people's programs.
# Every program maps the library: few and small segments.  The grammar and the start of a keeper run once in a program, and
# what asks the keeper waits for it.
SMALL := -Os
LIBRARY_SOURCES := $(wildcard preload/*.c) $(filter-out mapping/name.c,$(wildcard mapping/*.c))
SANITIZE_SOURCES := $(if $(SANITIZE),tests/sanitize/options.c)
KEEPER_SOURCES := $(wildcard keeper/*.c mapping/*.c) $(SANITIZE_SOURCES)
# The tool locks by the library's own code (zkflock lock), without its public symbols.
CLI_SOURCES := $(wildcard cli/*.c mapping/*.c) $(addprefix preload/,conversation.c cover.c holdings.c log.c page.c range.c \
	real.c runtime.c settings.c start.c) $(SANITIZE_SOURCES)
PROBE_SOURCES := $(filter-out tests/probes/lib%,$(wildcard tests/probes/*.c))
PROBE_LIBRARY_SOURCES := $(wildcard tests/probes/lib*.c)
C_SOURCES := $(wildcard preload/*.c mapping/*.c keeper/*.c cli/*.c tests/probes/*.c tests/inject/*.c tests/fuzz/*.c tests/sanitize/*.c bench/*.c)
C_HEADERS := $(wildcard preload/*.h mapping/*.h keeper/*.h cli/*.h tests/probes/*.h tests/fuzz/*.h bench/*.h)

library_objects := $(LIBRARY_SOURCES:%.c=$(BUILD)/pic/%.o)
keeper_objects := $(KEEPER_SOURCES:%.c=$(BUILD)/obj/%.o)
cli_objects := $(CLI_SOURCES:%.c=$(BUILD)/obj/%.o)
# actor64 is actor once more, built as half of Debian is: with 64-bit names.
probes := $(PROBE_SOURCES:tests/probes/%.c=$(BUILD)/probes/%) $(BUILD)/probes/actor64 \
	$(PROBE_LIBRARY_SOURCES:tests/probes/%.c=$(BUILD)/probes/%.so)

# Each target is for libFuzzer (make fuzz), and with replay.c for any compiler.
FUZZ_TARGETS := config claim server
fuzz := $(FUZZ_TARGETS:%=$(BUILD)/fuzz/%)
FUZZ_SANITIZE := fuzzer,address,undefined

# What the build and the tests need, as Debian 12 names it.  zookeeper is the server, for tests and demo; it brings java.
PACKAGES := gcc libc6-dev libzookeeper-mt-dev uthash-dev libmd-dev shunit2 zookeeper util-linux sqlite3 python3 perl \
	procps strace openssl stunnel4 dpkg-dev python3-kazoo mandoc systemtap-sdt-dev
BENCH_PACKAGES := libcurator-recipes-java libslf4j-java default-jdk-headless python3-kazoo
LINT_PACKAGES := clang clang-tidy clang-format cppcheck shellcheck

# Sources are listed and compilers looked up when a Makefile is read, so what needs packages first is made by another
# make, after them.
remake = +$(MAKE) --no-print-directory
SHELL := /bin/bash

.PHONY: all probes deps deps-lint check check-musl check-32 emulator-32 check-model soak inject fuzz check-sanitized bench bench-deps demo lint format install install-library uninstall dist deb \
	clean help
all: $(BUILD)/libzkflock.so $(BUILD)/zkflockd $(BUILD)/zkflock ## build the library, the keeper and the tool

probes: $(probes) $(fuzz) $(BUILD)/inject/zkflockd $(BUILD)/inject/libzkflock.so ## build the tests' small programs

check: ## install what is missing, build, run all tests; last line: N passed, N failed, N skipped
	$(remake) deps
	$(remake) $(if $(filter -j% --jobserver%,$(MAKEFLAGS)),,-j$(shell nproc)) DEVELOPER=1 all probes
	@BUILD=$(BUILD) tests/run $(TESTS)

demo: ## show lost updates without zkflock and none with it; leaves nothing running
	$(remake) deps
	$(remake) all probes
	@BUILD=$(BUILD) tests/demo.sh

check-model: ## model-check the claim protocol with spin; MUTANTS=1: that each rule is needed
	$(call install_missing,spin gcc libc6-dev)
	BUILD=$(BUILD) tests/model/check.sh $(if $(MUTANTS),--mutants)

check-musl: ## the library for musl, with programs of musl's; installs musl-tools
	$(remake) deps
	$(call install_missing,musl-tools)
	$(remake) DEVELOPER=1 all probes
	BUILD=$(BUILD) bash tests/94_other_abis_test.sh -- test_musl

check-32: ## the library for programs of 32 bits, on this machine's keeper; installs gcc-multilib, and qemu-user if need be
	$(remake) deps
	$(call install_missing,gcc-multilib)
	@mkdir -p $(BUILD)
	printf 'int main(void) { return 0; }' | $(CC) -m32 -x c -o $(BUILD)/try32 -
	+@$(BUILD)/try32 2>/dev/null || $(MAKE) --no-print-directory emulator-32
	$(remake) DEVELOPER=1 all probes
	BUILD=$(BUILD) bash tests/94_other_abis_test.sh -- test_32_bits

emulator-32:
	$(call install_missing,qemu-user)

MINUTES ?= 10
soak: ## for MINUTES=10 each: everything broken at random, random sequences against the kernel, a storm on a group; 100 keepers killed; a leader that hangs
	$(remake) deps
	$(remake) DEVELOPER=1 all probes
	BUILD=$(BUILD) KEEPER_KILLS=100 bash tests/55_loss_test.sh -- test_keepers_killed_at_any_moment
	BUILD=$(BUILD) bash tests/56_ensemble_test.sh -- soak_a_leader_that_hangs_ends_the_session
	BUILD=$(BUILD) tests/torture --seconds $$(($(MINUTES) * 60))
	BUILD=$(BUILD) tests/torture --refused 50 --seconds $$(($(MINUTES) * 60))
	BUILD=$(BUILD) SECONDS_OF_STRESS=$$(($(MINUTES) * 60)) bash tests/46_groups_stress_test.sh
	BUILD=$(BUILD) tests/differential --minutes $(MINUTES)

inject: ## for half an hour and more: every call to ZooKeeper and every allocation of the keeper fails once; STEP=10: a tenth
	$(remake) deps
	$(remake) DEVELOPER=1 all probes
	for sweep in calls allocations starts deaths expiries; do BUILD=$(BUILD) bash tests/52_inject_test.sh -- sweep_$$sweep || exit; done

SANITIZED_TESTS ?= tests/20_one_host_test.sh tests/30_two_hosts_test.sh tests/45_groups_test.sh tests/52_inject_test.sh \
	tests/55_loss_test.sh tests/60_records_test.sh tests/62_deadlock_test.sh
check-sanitized: ## system tests with keepers under address, undefined and thread sanitizer; valgrind on the library's path
	$(call install_missing,valgrind)
	$(remake) deps
	$(remake) SANITIZE=address,undefined all probes
	$(remake) SANITIZE=thread all probes
	$(remake) all probes
	BUILD=build-address-undefined tests/sanitize/run $(SANITIZED_TESTS)
	BUILD=build-thread tests/sanitize/run $(SANITIZED_TESTS)
	BUILD=$(BUILD) bash tests/95_valgrind_test.sh -- long_every_kind_of_lock long_asked_for_and_refused long_many_in_turn

FUZZ_SECONDS ?= 60
fuzz: ## libFuzzer on configuration, claims and socket, FUZZ_SECONDS=60 each
	$(call install_missing,clang libclang-rt-dev)
	$(remake) deps
	$(remake) CC=clang SANITIZE=fuzzer-no-link,address,undefined BUILD=build-fuzz $(FUZZ_TARGETS:%=build-fuzz/libfuzzer/%)
	BUILD=build-fuzz FUZZ_SECONDS=$(FUZZ_SECONDS) tests/fuzz/run $(FUZZ_TARGETS)

bench: ## what a lock costs: plain kernel and library side by side, and ZooKeeper's part
	$(remake) deps
	$(remake) all probes
	BUILD=$(BUILD) bench/run $(BENCHMARKS)

deps: ## install the Debian packages that build and tests need (with sudo when not root)
	$(call install_missing,$(PACKAGES))

bench-deps: ## install what make bench compares with: Curator, kazoo, a Java compiler
	$(call install_missing,$(BENCH_PACKAGES))

deps-lint:
	$(call install_missing,$(LINT_PACKAGES))

# Does nothing, and asks nobody, when everything is there.
define install_missing
	@command -v dpkg-query >/dev/null || { echo 'not a Debian system: please install these yourself: $(1)'; exit 0; }; \
	there=$$(dpkg-query -W -f '$${Package} $${db:Status-Status}\n' $(1) 2>/dev/null | sed -n 's/ installed$$//p'); \
	missing=; for p in $(1); do grep -qxF "$$p" <<<"$$there" || missing+=" $$p"; done; \
	[ "$$missing" ] || exit 0; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=sudo; \
	echo "installing:$$missing"; \
	$$sudo apt-get -q -o Acquire::Retries=3 update </dev/null && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends \
		$$missing </dev/null
endef

$(BUILD)/libzkflock.so: $(library_objects) preload/libzkflock.map
	$(CC) -shared -Wl,-soname,libzkflock.so -Wl,--version-script=preload/libzkflock.map -Wl,-z,noseparate-code $(BASE_LDFLAGS) \
		-o $@ $(library_objects) $(CFLAGS) $(LDFLAGS)

$(BUILD)/zkflockd: $(keeper_objects)
	$(CC) -pie $(BASE_LDFLAGS) $(PROGRAM_SANITIZE) -o $@ $(keeper_objects) $(CFLAGS) $(LDFLAGS) \
		-lzookeeper_mt -lmd -pthread

$(BUILD)/zkflock: $(cli_objects)
	$(CC) -pie $(BASE_LDFLAGS) $(PROGRAM_SANITIZE) -o $@ $(cli_objects) $(CFLAGS) $(LDFLAGS) -lmd

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(LIBRARY_CFLAGS) $(if $(filter mapping/% preload/start.c preload/cover.c,$<),$(SMALL)) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/obj/preload/%.o: PROGRAM_CFLAGS += -DZKF_SBINDIR='"$(PREFIX)/sbin"'

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(PROGRAM_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/places: force
	@mkdir -p $(@D)
	@echo $(places) $(VERSION) | cmp -s - $@ || echo $(places) $(VERSION) >$@
$(placed:%=$(BUILD)/%.o): $(BUILD)/places
$(placed:%=$(BUILD)/%.o): BASE_CFLAGS += $(places)
.PHONY: force

# A keeper whose calls can be made to fail: the same objects, linked once more.
injected = $(shell tests/inject/table)
$(BUILD)/inject/zkflockd: $(keeper_objects) $(BUILD)/obj/tests/inject/inject.o
	@mkdir -p $(@D)
	$(CC) -pie $(BASE_LDFLAGS) $(PROGRAM_SANITIZE) $(injected:%=-Wl,--wrap=%) -o $@ $^ $(CFLAGS) $(LDFLAGS) \
		-lzookeeper_mt -lmd -pthread

# Beside it: a program starts the keeper that lies beside the library.
$(BUILD)/inject/libzkflock.so: $(BUILD)/libzkflock.so
	@mkdir -p $(@D)
	cp $< $@

# server.c, loop.c and log.c are in fuzz_server.c itself.
fuzz_objects = $(filter-out %/keeper/main.o %/server.o %/loop.o %/log.o %/options.o,$(keeper_objects))
$(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(BUILD)/obj/tests/fuzz/replay.o $(keeper_objects)
	@mkdir -p $(@D)
	$(CC) -pie $(PROGRAM_SANITIZE) -o $@ $< $(BUILD)/obj/tests/fuzz/replay.o \
		$(if $(filter %/server,$@),$(fuzz_objects),$(filter-out %/keeper/main.o %/options.o,$(keeper_objects))) \
		$(CFLAGS) $(LDFLAGS) -lzookeeper_mt -lmd -pthread

$(BUILD)/libfuzzer/%: $(BUILD)/obj/tests/fuzz/fuzz_%.o $(keeper_objects)
	@mkdir -p $(@D)
	$(CC) -pie -fsanitize=$(FUZZ_SANITIZE) -o $@ $< \
		$(if $(filter %/server,$@),$(fuzz_objects),$(filter-out %/keeper/main.o %/options.o,$(keeper_objects))) \
		$(CFLAGS) $(LDFLAGS) -lzookeeper_mt -lmd -pthread

$(BUILD)/obj/tests/sanitize/options.o: PROGRAM_CFLAGS += -DZKF_REPORTS='"$(abspath $(BUILD))/reports/report"' \
	-DZKF_SUPPRESSIONS='"$(CURDIR)/tests/sanitize/thread.supp"'

# Probes play other people's programs, so they are built as those are: no hardening flags of ours, no sanitizer.
PROBE_CFLAGS := -std=gnu11 -O1 -g -I. $(WARNINGS) -MMD -MP -pthread

$(BUILD)/probes/actor64: tests/probes/actor.c
	@mkdir -p $(@D)
	$(CC) $(PROBE_CFLAGS) -D_FILE_OFFSET_BITS=64 $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS)

$(BUILD)/probes/lib%.so: tests/probes/lib%.c
	@mkdir -p $(@D)
	$(CC) $(PROBE_CFLAGS) -fPIC -shared $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS)

$(BUILD)/probes/zkcat: PROBE_LIBS := -DTHREADED -lzookeeper_mt
$(BUILD)/probes/%: tests/probes/%.c
	@mkdir -p $(@D)
	$(CC) $(PROBE_CFLAGS) $(CPPFLAGS) $(CFLAGS) -o $@ $< $(LDFLAGS) $(PROBE_LIBS)

LINT_CPPFLAGS := $(filter -I% -D%,$(BASE_CFLAGS) $(places))

lint: ## clang-tidy, cppcheck, shellcheck
	$(remake) deps-lint
	printf '%s\n' $(C_SOURCES) | xargs -P $$(nproc) -I{} clang-tidy --quiet {} -- -std=gnu11 -DTHREADED \
		-DZKF_REPORTS='""' -DZKF_SUPPRESSIONS='""' $(LINT_CPPFLAGS)
	cppcheck --quiet --std=c11 --error-exitcode=1 --inline-suppr --enable=warning,performance,portability \
		--suppress=missingIncludeSystem '-D__has_include(x)=0' $(LINT_CPPFLAGS) $(C_SOURCES)
	shellcheck -x -P tests -e SC1091,SC2013,SC2016,SC2119,SC2120 $(wildcard tests/*.sh tests/run bench/*.sh bench/run .ci/run packaging/dist packaging/deb packaging/*inst packaging/*rm)

format: ## show what clang-format would change; FIX=1 changes it
	$(remake) deps-lint
	clang-format --style=file $(if $(FIX),-i,--dry-run --Werror) $(C_SOURCES) $(C_HEADERS)

SUBSTITUTE := sed -e 's,@SBINDIR@,$(PREFIX)/sbin,g' -e 's,@BINDIR@,$(PREFIX)/bin,g'

install: all ## install below $(DESTDIR)$(PREFIX); an existing $(SYSCONFDIR)/zkflock.conf stays as it is
	install -D -m 644 $(BUILD)/libzkflock.so $(DESTDIR)$(LIBDIR)/libzkflock.so
	install -D -m 755 $(BUILD)/zkflockd $(DESTDIR)$(PREFIX)/sbin/zkflockd
	install -D -m 755 $(BUILD)/zkflock $(DESTDIR)$(PREFIX)/bin/zkflock
	install -D -m 644 conf/zkflock.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zkflock
	for page in man/*.[1-8]; do \
		install -D -m 644 $$page $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/} || exit; done
	install -D -m 644 conf/zkflock.socket $(DESTDIR)$(UNITDIR)/zkflock.socket
	$(SUBSTITUTE) conf/zkflock.service.in | install -D -m 644 /dev/stdin $(DESTDIR)$(UNITDIR)/zkflock.service
	install -D -m 644 conf/zkflock.tmpfiles $(DESTDIR)$(TMPFILESDIR)/zkflock.conf
	install -d -m 755 $(DESTDIR)$(SYSCONFDIR)/zkflock.conf.d
	[ -e $(DESTDIR)$(SYSCONFDIR)/zkflock.conf ] || \
		install -D -m 644 conf/zkflock.conf $(DESTDIR)$(SYSCONFDIR)/zkflock.conf

uninstall: ## remove what install put there; a configuration that was changed stays
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/zkflock
	for page in man/*.[1-8]; do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${page##*.}/$${page##*/}; done
	rm -f $(DESTDIR)$(LIBDIR)/libzkflock.so $(DESTDIR)$(PREFIX)/sbin/zkflockd $(DESTDIR)$(PREFIX)/bin/zkflock \
		$(DESTDIR)$(UNITDIR)/zkflock.socket $(DESTDIR)$(UNITDIR)/zkflock.service \
		$(DESTDIR)$(TMPFILESDIR)/zkflock.conf
	! cmp -s conf/zkflock.conf $(DESTDIR)$(SYSCONFDIR)/zkflock.conf || rm -f $(DESTDIR)$(SYSCONFDIR)/zkflock.conf
	[ ! -d $(DESTDIR)$(SYSCONFDIR)/zkflock.conf.d ] || \
		rmdir --ignore-fail-on-non-empty $(DESTDIR)$(SYSCONFDIR)/zkflock.conf.d

DISTDIR ?= $(BUILD)/dist

dist: ## zkflock-VERSION.tar.gz in DISTDIR (build/dist), the same bytes for the same commit
	packaging/dist $(VERSION) $(DISTDIR)

# Paths of the installation are in the binaries: objects of their own.  The library for programs of 32 bits:
# make deb CC='gcc -m32' DEB_ARCH=i386 LIBRARY_ONLY=1
DEB_ARCH ?= $(shell dpkg --print-architecture 2>/dev/null)
LIBRARY_ONLY ?=
deb_make = $(MAKE) --no-print-directory BUILD=$(BUILD)/deb-$(DEB_ARCH) PREFIX=/usr SYSCONFDIR=/etc \
	CFLAGS='$(CFLAGS) -ffile-prefix-map=$(CURDIR)=.'

deb: ## Debian packages libzkflock and zkflock in DISTDIR
	rm -rf $(BUILD)/deb-$(DEB_ARCH)/root
	+$(deb_make) DESTDIR=$(abspath $(BUILD))/deb-$(DEB_ARCH)/root $(if $(LIBRARY_ONLY),install-library,install)
	packaging/deb $(VERSION) $(DEB_ARCH) $(BUILD)/deb-$(DEB_ARCH)/root $(DISTDIR)

install-library: $(BUILD)/libzkflock.so
	install -D -m 644 $(BUILD)/libzkflock.so $(DESTDIR)$(LIBDIR)/libzkflock.so

clean: ## remove what was built
	rm -rf $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS=$$'\t' read -r target text; do \
		printf '  %-12s %s\n' "$$target" "$$text"; done

-include $(library_objects:.o=.d) $(keeper_objects:.o=.d) $(cli_objects:.o=.d) $(wildcard $(BUILD)/probes/*.d $(BUILD)/obj/tests/inject/*.d $(BUILD)/obj/tests/fuzz/*.d)
