/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * What the console does about the process's own state: closed descriptors, and a shell's job
 * control. Each test is a child process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/unit/libfront.h"
#include "vmm/console.h"

static void no_quit(void *ctx)
{
	(void)ctx;
	abort();
}

/* In a child, whose descriptors are its own. */
static void test_reserve_stdio(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		int err = 0;

		close(0);
		close(2);
		err |= console_reserve_stdio();
		for (int fd = 0; fd < 3; fd++)
			err |= fcntl(fd, F_GETFD) < 0;
		err |= read(0, &status, 1) != 0;
		_exit(err ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As a job in a shell's background: 0, or the number of what went wrong. */
static int background_job(int terminal)
{
	static struct console console;
	struct loop loop;
	struct termios before;
	sigset_t set;

	setpgid(0, 0);
	tcgetattr(terminal, &before);
	console_init(&console);
	if (loop_init(&loop) || console_start(&console, &loop, terminal, terminal, no_quit, NULL))
		return 1;
	if (is_raw(terminal))
		return 2;
	console.input.ready(&console.input, POLLIN); /* reads nothing, and is not stopped */
	console_resume(&console);
	if (is_raw(terminal) || console.ended)
		return 3;
	sigemptyset(&set);
	sigaddset(&set, SIGTTOU);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (tcsetpgrp(terminal, getpgrp()))
		return 4;
	console_resume(&console);
	if (!is_raw(terminal))
		return 5;
	if (tcsetpgrp(terminal, getsid(0)))
		return 6;
	/* The shell's settings now, which are not ours to change. */
	before.c_cc[VEOF] = 'q';
	tcsetattr(terminal, TCSANOW, &before);
	console_stop(&console, true, -1);
	return has_settings(terminal, &before) ? 0 : 7;
}

static void test_background(void **state)
{
	int fds[2];
	int status;
	pid_t pid;

	(void)state;
	assert_int_equal(open_pty(fds), 0);
	pid = fork();
	if (!pid) {
		setsid();
		if (ioctl(fds[0], TIOCSCTTY, 0))
			_exit(100);
		pid = fork();
		if (!pid)
			_exit(background_job(fds[0]));
		if (waitpid(pid, &status, WUNTRACED) != pid || !WIFEXITED(status)) {
			kill(pid, SIGKILL);
			_exit(101);
		}
		_exit(WEXITSTATUS(status));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reserve_stdio),
		cmocka_unit_test(test_background),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
