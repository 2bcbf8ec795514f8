/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The host end that is whelp's own terminal, or whatever stdin and stdout are: pipes, files,
 * nothing.
 *
 * A terminal as stdin is put into raw mode (Ctrl-C goes to the guest) and has escapes: Ctrl-A x
 * quits, Ctrl-A h tells of them, Ctrl-A a or Ctrl-A Ctrl-A is one Ctrl-A for the guest; Ctrl-A and
 * any other key are both the guest's. From anything else all bytes pass as they are. In the
 * background of a shell's job control the terminal is left alone: whelp runs on without input until
 * it is foreground.
 *
 * Output is buffered and written by a thread of its own, so that only a buffer that stays full
 * holds the guest up. The descriptors' flags (O_NONBLOCK) belong to whoever shares them, and stay
 * as they are.
 */
#ifndef WHELP_CONSOLE_H
#define WHELP_CONSOLE_H

#include <pthread.h>
#include <stdbool.h>
#include <termios.h>

#include "vmm/byte_ring.h"
#include "vmm/chardev.h"
#include "vmm/loop.h"

/* Typed input is read ahead this far, so that an escape is seen though the guest does not read. */
#define CONSOLE_INPUT_SIZE 4096u

struct console {
	struct chardev chardev;
	struct loop *loop;
	void (*quit)(void *ctx);
	void *quit_ctx;

	/* Input: the loop's thread only, but for `wake`. */
	struct loop_source input;
	struct loop_source wake; /* eventfd: the front has room */
	bool watched;		 /* `input` is in the loop; a regular file cannot be */
	bool ended;
	bool terminal;
	bool escape; /* Ctrl-A was the last byte */
	bool saved_valid;
	bool raw;
	struct termios saved;
	size_t in_used;
	uint8_t in[CONSOLE_INPUT_SIZE];

	/* Output: under `lock`. */
	pthread_mutex_t lock;
	pthread_cond_t work;
	struct byte_ring out;
	bool starved; /* the front is owed `writable` */
	bool discard; /* nobody reads any more */
	bool draining;
	bool stopping;
	int writer_fd; /* eventfd: the writer drained all, or ends */

	int out_fd;
	bool writing; /* `writer` exists */
	pthread_t writer;
};

/*
 * Opens /dev/null for each of the descriptors 0 to 2 that is closed, lest a file opened later
 * becomes stdin or stdout. To be called before anything is opened. 0 or -errno.
 */
int console_reserve_stdio(void);

/* Cannot fail. Until console_start() it keeps output and reads no input. */
void console_init(struct console *console);

/*
 * Puts the terminal, if `in_fd` is one, into raw mode, and starts input and output. The descriptors
 * stay the caller's. `quit` is called by the thread in `loop` when the user asks for it.
 * Returns 0, or -errno after a message; console_stop() and console_fini() are fine then.
 */
int console_start(struct console *console, struct loop *loop, int in_fd, int out_fd,
		  void (*quit)(void *ctx), void *ctx);

/* Gives the terminal's settings back; for a SIGTSTP, before whelp stops itself. */
void console_suspend(struct console *console);

/* Takes the terminal again; for a SIGCONT. On the thread in the loop, like console_suspend(). */
void console_resume(struct console *console);

/*
 * Ends input and output and restores the terminal. With `drain` what is buffered is written first,
 * for as long as that takes: until `cancel_fd` (a signalfd, say; -1 for none) becomes readable,
 * which is left unread. Without, returns within milliseconds even if nobody reads the output. The
 * loop must not be running in another thread. May be called again, and without a start.
 */
void console_stop(struct console *console, bool drain, int cancel_fd);

/* After console_stop() and the front's detaching. */
void console_fini(struct console *console);

#endif
