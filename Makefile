# zkflock - advisory file locks that hold across a cluster
# `make help` lists the targets.  CC, CFLAGS, LDFLAGS, DESTDIR and PREFIX are yours; your flags come last.
# SPDX-License-Identifier: Apache-2.0

VERSION := 0.1.0
PREFIX ?= /usr/local
BUILD ?= build
CC ?= cc

WARNINGS := -Wall -Wextra -Wformat=2 -Wshadow -Wundef -Wvla -Wpointer-arith -Wwrite-strings -Wcast-qual \
	-Wstrict-prototypes -Wmissing-prototypes
ifeq ($(DEVELOPER),1)
WARNINGS += -Werror
endif
HARDENING := -fno-common -fvisibility=hidden -fstack-protector-strong
BASE_CFLAGS := -std=gnu11 -O2 -g $(WARNINGS) $(HARDENING) -MMD -MP -I. -DZKF_VERSION='"$(VERSION)"'
# FORTIFY pulls *_chk symbols in, which a musl or an older glibc has not: right for our programs, wrong for a library
# that is preloaded into other people's.
PROGRAM_CFLAGS := -D_FORTIFY_SOURCE=2 -fPIE
LIBRARY_CFLAGS := -U_FORTIFY_SOURCE -fPIC -DZKF_SBINDIR='"$(PREFIX)/sbin"'
BASE_LDFLAGS := -Wl,-z,defs,-z,relro,-z,now

LIBRARY_SOURCES := $(wildcard preload/*.c) mapping/config.c
KEEPER_SOURCES := $(wildcard keeper/*.c mapping/*.c)
CLI_SOURCES := $(wildcard cli/*.c mapping/*.c)
PROBE_SOURCES := $(wildcard tests/probes/*.c)

library_objects := $(LIBRARY_SOURCES:%.c=$(BUILD)/pic/%.o)
keeper_objects := $(KEEPER_SOURCES:%.c=$(BUILD)/obj/%.o)
cli_objects := $(CLI_SOURCES:%.c=$(BUILD)/obj/%.o)
probes := $(PROBE_SOURCES:tests/probes/%.c=$(BUILD)/probes/%)

.PHONY: all probes deps check demo lint format clean help
all: $(BUILD)/libzkflock.so $(BUILD)/zkflockd $(BUILD)/zkflock ## build the library, the keeper and the tool

$(BUILD)/libzkflock.so: $(library_objects) preload/libzkflock.map
	$(CC) -shared -Wl,-soname,libzkflock.so -Wl,--version-script=preload/libzkflock.map $(BASE_LDFLAGS) \
		-o $@ $(library_objects) $(CFLAGS) $(LDFLAGS)

$(BUILD)/zkflockd: $(keeper_objects)
	$(CC) -pie $(BASE_LDFLAGS) -o $@ $(keeper_objects) $(CFLAGS) $(LDFLAGS) -lzookeeper_mt -lmd -pthread

$(BUILD)/zkflock: $(cli_objects)
	$(CC) -pie $(BASE_LDFLAGS) -o $@ $(cli_objects) $(CFLAGS) $(LDFLAGS) -lmd

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(LIBRARY_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(PROGRAM_CFLAGS) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<


clean: ## remove what was built
	rm -rf $(BUILD)

-include $(library_objects:.o=.d) $(keeper_objects:.o=.d) $(cli_objects:.o=.d)
