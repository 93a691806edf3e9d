/*
 * cli/program.c - will the dynamic loader preload our library into this program?
 *
 * Answers for: looking at ELF headers and #! lines before exec, since the loader says nothing of a program that it
 *              does not load, and little of a library that does not fit.
 * Does not:    prove it.  A dynamic program may still make raw system calls.
 * Threads:     one.
 * Specification: ld.so(8), "LD_PRELOAD" and "Secure-execution mode"; execve(2), "Interpreter scripts"; elf(5).
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE

#include <sys/stat.h>
#include <sys/xattr.h>

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* The kernel follows no more interpreters than this (BINPRM's bound). */
#define INTERPRETERS_MAX 5
#define SCRIPT_LINE_BYTES 256
#define SHELL "/bin/sh"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define NATIVE_DATA ELFDATA2LSB
#else
#define NATIVE_DATA ELFDATA2MSB
#endif

#if __ELF_NATIVE_CLASS == 64
#define NATIVE_CLASS ELFCLASS64
#else
#define NATIVE_CLASS ELFCLASS32
#endif

/* own_machine - e_machine of the running tool, which is built with the library */
static ElfW(Half) own_machine(void)
{
	ElfW(Ehdr) header = {.e_machine = EM_NONE};
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return EM_NONE;
	if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header))
		header.e_machine = EM_NONE;
	close(fd);
	return header.e_machine;
}

static bool is_elf(const void *bytes, size_t len)
{
	return len >= SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0;
}

/* is_native - an ELF header of our class, byte order and machine; EM_NONE (no /proc) means that it can't be told */
static bool is_native(const ElfW(Ehdr) * header)
{
	ElfW(Half) machine = own_machine();

	return header->e_ident[EI_CLASS] == NATIVE_CLASS && header->e_ident[EI_DATA] == NATIVE_DATA &&
	       (machine == EM_NONE || header->e_machine == machine);
}

int cli_library_check(const char *path, char *why)
{
	ElfW(Ehdr) header;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0) {
		int error = errno;

		snprintf(why, CLI_WHY_BYTES, "%s: %s", path, strerror(error));
		return -error;
	}
	memset(&header, 0, sizeof(header));
	got = pread(fd, &header, sizeof(header), 0);
	close(fd);
	if (got != (ssize_t)sizeof(header) || !is_elf(&header, sizeof(header)) || header.e_type != ET_DYN) {
		snprintf(why, CLI_WHY_BYTES, "%s: not an ELF shared library", path);
		return -ENOEXEC;
	}
	if (!is_native(&header)) {
		snprintf(why, CLI_WHY_BYTES, "%s: built for another machine or word size", path);
		return -ENOEXEC;
	}
	return 0;
}

/* looks_dynamic - has it a dynamic loader (PT_INTERP)?  In doubt yes: the exec will tell. */
static bool looks_dynamic(int fd, const ElfW(Ehdr) * header)
{
	ElfW(Phdr) segment;
	unsigned i;

	for (i = 0; i < header->e_phnum; i++) {
		off_t at = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);

		if (pread(fd, &segment, sizeof(segment), at) != (ssize_t)sizeof(segment))
			return true;
		if (segment.p_type == PT_INTERP)
			return true;
	}
	return false;
}

/* gains_privileges - will the loader run it in secure-execution mode, in which it drops our LD_PRELOAD? */
static const char *gains_privileges(int fd)
{
	struct stat status;

	if (fstat(fd, &status) < 0)
		return NULL;
	if ((status.st_mode & S_ISUID) && status.st_uid != getuid())
		return "set-user-ID";
	/* Without group execution the bit is an old mark for mandatory locking. */
	if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && status.st_gid != getgid())
		return "set-group-ID";
	if (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return "marked with file capabilities";
	return NULL;
}

/* is_go - its runtime makes system calls itself, also where it is linked with libc */
static bool is_go(int fd, const ElfW(Ehdr) * header)
{
	char notes[1024];
	ElfW(Phdr) segment;
	ElfW(Nhdr) note;
	unsigned i;

	for (i = 0; i < header->e_phnum; i++) {
		off_t place = (off_t)(header->e_phoff + (uint64_t)i * header->e_phentsize);
		ssize_t got, at;

		if (pread(fd, &segment, sizeof(segment), place) != (ssize_t)sizeof(segment))
			return false;
		if (segment.p_type != PT_NOTE)
			continue;
		got = pread(fd, notes, segment.p_filesz < sizeof(notes) ? segment.p_filesz : sizeof(notes),
		            (off_t)segment.p_offset);
		for (at = 0; at + (ssize_t)sizeof(note) + 4 <= got;) {
			memcpy(&note, notes + at, sizeof(note));
			if (note.n_namesz == 4 && memcmp(notes + at + sizeof(note), "Go\0", 4) == 0)
				return true;
			if (note.n_namesz > sizeof(notes) || note.n_descsz > sizeof(notes))
				break;
			at += (ssize_t)(sizeof(note) + ((note.n_namesz + 3) & ~3u) + ((note.n_descsz + 3) & ~3u));
		}
	}
	return false;
}

static enum cli_program look_at_elf(int fd, const char *path, const ElfW(Ehdr) * header, char *why)
{
	const char *privileges;

	if (!is_native(header)) {
		snprintf(why, CLI_WHY_BYTES, "%s is built for another machine or word size than the library", path);
		return CLI_PROGRAM_IMPOSSIBLE;
	}
	if (!looks_dynamic(fd, header)) {
		snprintf(why, CLI_WHY_BYTES, "%s is statically linked: its locks are seen by this host only", path);
		return CLI_PROGRAM_UNSEEN;
	}
	if (is_go(fd, header)) {
		snprintf(why, CLI_WHY_BYTES,
		         "%s is a Go program, which makes system calls without libc: its locks are seen by "
		         "this host only",
		         path);
		return CLI_PROGRAM_UNSEEN;
	}
	privileges = gains_privileges(fd);
	if (!privileges)
		return CLI_PROGRAM_GOOD;
	snprintf(why, CLI_WHY_BYTES, "%s is %s, so the loader drops LD_PRELOAD: its locks are seen by this host only",
	         path, privileges);
	return CLI_PROGRAM_UNSEEN;
}

/* script_interpreter - the program that a #! line names, cut out of the line; /bin/sh for a script without one */
static const char *script_interpreter(char *line)
{
	char *start;

	if (line[0] != '#' || line[1] != '!')
		return SHELL; /* execvp(3) does so on ENOEXEC */
	line[strcspn(line, "\n")] = '\0';
	start = line + 2 + strspn(line + 2, " \t");
	start[strcspn(start, " \t")] = '\0';
	return start;
}

enum cli_program cli_program_look(const char *path, char *why)
{
	char line[SCRIPT_LINE_BYTES + 1], name[SCRIPT_LINE_BYTES + 1];
	int depth;

	for (depth = 0; depth < INTERPRETERS_MAX; depth++) {
		enum cli_program result;
		ElfW(Ehdr) header;
		ssize_t got;
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		if (fd < 0) {
			/* It may be executable without being readable; a missing interpreter is exec's to report. */
			snprintf(why, CLI_WHY_BYTES, "%s: %s: can't tell whether the library will be loaded", path,
			         strerror(errno));
			return CLI_PROGRAM_UNSEEN;
		}
		memset(line, 0, sizeof(line));
		got = pread(fd, line, sizeof(line) - 1, 0);
		if (got >= (ssize_t)sizeof(header) && is_elf(line, (size_t)got)) {
			memcpy(&header, line, sizeof(header));
			result = look_at_elf(fd, path, &header, why);
			close(fd);
			return result;
		}
		close(fd);
		/* Into another buffer: `path` may point into `name`, and `line` is read anew in the next turn. */
		strcpy(name, script_interpreter(line));
		path = name;
	}
	return CLI_PROGRAM_GOOD; /* the kernel will refuse it with ELOOP */
}
