/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * An event loop over epoll, and a thread that runs one. The main thread has a loop for signals and
 * the console; each queue pair's worker has one for its kicks and its tap queue.
 */
#ifndef WHELP_LOOP_H
#define WHELP_LOOP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct loop_source;

/* Called by the thread in loop_run() with the EPOLL* bits that are ready. */
typedef void loop_ready_fn(struct loop_source *source, uint32_t events);

/* Embedded in its user's object; owned by it, like the fd. Must stay put while it is in a loop. */
struct loop_source {
	int fd;
	loop_ready_fn *ready;
};

struct loop {
	int epoll_fd;
	int stop_fd; /* eventfd */
	atomic_bool stopping;
	struct loop_source *again; /* of loop_again(), or NULL */
	struct loop_source *timer; /* of loop_set_timer() */
	uint64_t deadline;	   /* the same, 0: none */
};

/* 0 or -errno. loop_fini() is fine on what a failed loop_init() left. */
int loop_init(struct loop *loop);
void loop_fini(struct loop *loop);

/*
 * Watch `source` for `events` (EPOLLIN, ...), change what it is watched for, or let it go. 0 or
 * -errno.
 */
int loop_add(struct loop *loop, struct loop_source *source, uint32_t events);
int loop_change(struct loop *loop, struct loop_source *source, uint32_t events);
void loop_remove(struct loop *loop, struct loop_source *source);

/*
 * For a callback that has more to do than it should at once: calls `source`, which need not be in
 * the loop, without events as soon as no other is ready. There is one such source at a time. From
 * the loop's thread.
 */
void loop_again(struct loop *loop, struct loop_source *source);

/*
 * Calls `source`, which need not be in the loop, without events once it is `deadline`
 * (CLOCK_MONOTONIC, ns); 0: not any more. There is one such time at a time, and it is over with the
 * call. It costs no system call. From the loop's thread.
 */
void loop_set_timer(struct loop *loop, struct loop_source *source, uint64_t deadline);

/* Calls one source if one is ready, without waiting; true if it did. From the loop's thread. */
bool loop_poll(struct loop *loop);

/* CLOCK_MONOTONIC in ns. */
uint64_t loop_now(void);

/*
 * Calls ready sources until loop_stop(). A source may be removed by its own callback, not by
 * another source's in the same loop.
 */
void loop_run(struct loop *loop);

/* Makes loop_run() return, now or at its next start; from any thread or a signal handler. */
void loop_stop(struct loop *loop);

/* True once loop_stop() was called: a callback with much to do looks here between batches. */
static inline bool loop_stopping(const struct loop *loop)
{
	return atomic_load_explicit(&loop->stopping, memory_order_relaxed);
}

/* A function to run on a worker's thread, at the top of its loop. */
struct worker_call {
	void (*run)(void *ctx);
	void *ctx;
	bool done;
};

struct worker {
	struct loop loop;
	struct loop_source calls; /* eventfd: `call` is set */
	pthread_mutex_t lock;	  /* `call` */
	pthread_cond_t answered;
	struct worker_call *call;
	void (*begin)(struct worker *worker); /* first thing in its thread; NULL: nothing */
	pthread_t thread;
	bool running;
	int cpu;       /* -1: any */
	char name[16]; /* as ps -L shows it */
};

/* Makes the loop, for sources to be added; 0 or -errno. `name` is cut to 15 bytes. */
int worker_init(struct worker *worker, const char *name, void (*begin)(struct worker *worker));

/* Before it starts: lets it run on this host CPU alone; -1: anywhere. */
void worker_pin(struct worker *worker, int cpu);

/*
 * On the worker's thread: whether it waits for its turn when it is woken (SCHED_BATCH), or may take
 * the CPU from others, as threads do. One that was given another class altogether stays in that.
 */
void worker_set_batch(bool on);

/*
 * Starts the thread with every signal blocked; 0 or -errno: -EINVAL if this process may not use its
 * CPU.
 */
int worker_start(struct worker *worker);

/* Stops and joins the thread if it runs: when this returns no callback of its loop is under way. */
void worker_stop(struct worker *worker);

/*
 * Runs `run(ctx)` on the worker's thread, between two of its callbacks, and returns when it has
 * run: a way to change what the thread owns. On a worker that does not run, it is called here.
 * Callers take turns; not from the worker's own thread.
 */
void worker_call(struct worker *worker, void (*run)(void *ctx), void *ctx);

/* True while somebody waits for the worker, to stop it or in worker_call(). From its own thread. */
bool worker_awaited(const struct worker *worker);

/* Also stops it. Fine after a failed worker_init(). */
void worker_fini(struct worker *worker);

#endif
