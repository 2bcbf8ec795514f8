/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One run of bench-ring: how long the device's workers, or a bare loop, take for a frame.
 *
 * Frames are moved in bursts. A burst is laid out beforehand, in rings and on the wire, while those
 * who are to move it sleep; then they are woken, and what laid it out sleeps. Three things are
 * measured:
 * - the time from the first frame's passing the back end to the last one's, by the time stamp
 *   counter: the frame's cost while there is enough to do. Waking up is not in it. Where frames
 *   leave in batches it is that from the first batch to the last.
 * - the CPU time of the threads that move frames, over the whole run: with waking up and going to
 *   sleep, once a burst, and with what the kernel does on their account.
 * - the instructions of these threads, where the machine counts them.
 *
 * With several pairs a burst counts only if the pairs were busy at the same time, for the most
 * part.
 *
 * Prints one line of JSON.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/bench/subject.h"
#include "vmm/util.h"

#define WARM_UP	    3u /* bursts */
#define MAX_BURSTS  200000u
#define MAX_TIMES   20u /* so many times as long as is measured may pass */
#define MIN_OVERLAP 0.5
#define NS_PER_S    1000000000ull

struct run {
	struct bench bench;
	struct wire *wire;
	struct subject *subject;
	cpu_set_t allowed;
	struct meter_threads movers;
	struct meter_rate rate;
	pthread_barrier_t barrier; /* of the pairs' threads */
	pthread_barrier_t begin;   /* of these and the main thread */
	bool done;
	unsigned bursts; /* all, the first WARM_UP too */
	unsigned apart;	 /* that did not count: the pairs took turns */
	unsigned counted;
	double busy_cycles; /* of bursts that counted, one pair's */
	double *cycles;	    /* per frame of a pair, of each burst that counted */
	double *frames;	    /* and per cycle, of all pairs */
	uint64_t started;   /* CLOCK_MONOTONIC, ns */
	uint64_t movers_cpu;
	uint64_t all_cpu;
	uint64_t instructions;
};

struct pair_thread {
	struct run *run;
	unsigned pair;
	pthread_t id;
};

void bench_die(const char *fmt, ...)
{
	va_list args;

	fputs("ring: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
	_Exit(1);
}

/* ---- measuring ---- */

/* The part of the longest pair's time in which all were busy. */
static double overlap(const struct run *run)
{
	uint64_t begin = 0, end = UINT64_MAX, longest = 0;

	for (unsigned i = 0; i < run->bench.pairs; i++) {
		const struct gauge *g = &run->wire->gauges[i];

		begin = MAX(begin, g->first);
		end = MIN(end, g->last);
		longest = MAX(longest, g->last - g->first);
	}
	return end > begin ? (double)(end - begin) / (double)longest : 0;
}

static void note_burst(struct run *run)
{
	double cycles = 0, rate = 0;

	for (unsigned i = 0; i < run->bench.pairs; i++)
		if (!run->wire->gauges[i].timed)
			bench_die("a burst leaves in one batch: there is nothing to time");
	if (overlap(run) < MIN_OVERLAP) {
		run->apart++;
		return;
	}
	for (unsigned i = 0; i < run->bench.pairs; i++) {
		const struct gauge *g = &run->wire->gauges[i];
		double each = (double)(g->last - g->first) / (double)g->timed;

		cycles += each / run->bench.pairs;
		rate += 1 / each;
	}
	run->cycles[run->counted] = cycles;
	run->frames[run->counted] = rate;
	run->counted++;
	run->busy_cycles += cycles * run->subject->burst;
}

static void start_counting(struct run *run)
{
	run->movers_cpu = meter_cpu(&run->movers);
	run->all_cpu = meter_clock(CLOCK_PROCESS_CPUTIME_ID);
	run->instructions = meter_count(&run->movers);
}

static void stop_counting(struct run *run)
{
	meter_find(&run->movers);
	run->movers_cpu = meter_cpu(&run->movers) - run->movers_cpu;
	run->all_cpu = meter_clock(CLOCK_PROCESS_CPUTIME_ID) - run->all_cpu;
	run->instructions = meter_count(&run->movers) - run->instructions;
}

/* By one thread, while the others wait. */
static void after_burst(struct run *run)
{
	uint64_t now = meter_clock(CLOCK_MONOTONIC);
	double busy;

	run->bursts++;
	if (run->bursts < WARM_UP)
		return;
	if (run->bursts == WARM_UP) {
		run->started = now;
		start_counting(run);
		return;
	}
	note_burst(run);
	busy = run->busy_cycles / meter_cycles_per_ns(&run->rate);
	run->done = busy >= (double)run->bench.ns || run->counted + run->apart == MAX_BURSTS ||
		    now - run->started >= MAX_TIMES * run->bench.ns;
	if (run->done)
		stop_counting(run);
}

static void prepare_burst(struct run *run, unsigned pair)
{
	struct gauge *g = &run->wire->gauges[pair];

	*g = (struct gauge){ .target = run->subject->burst };
	if (run->bench.rx)
		wire_feed(run->wire, pair, run->subject->burst);
	run->subject->ops->prepare(run->subject, pair);
}

static void *pair_main(void *arg)
{
	struct pair_thread *t = arg;
	struct run *run = t->run;

	/* The worker's neighbour: a driver's writes come from another CPU. */
	if (run->bench.pin)
		meter_pin(0, &run->allowed, t->pair + 1);
	pthread_barrier_wait(&run->begin);
	while (!run->done) {
		prepare_burst(run, t->pair);
		pthread_barrier_wait(&run->barrier);
		run->subject->ops->go(run->subject, t->pair);
		run->subject->ops->wait(run->subject, t->pair);
		if (!run->bench.rx)
			wire_drain(run->wire, t->pair, run->subject->burst);
		if (pthread_barrier_wait(&run->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			after_burst(run);
		pthread_barrier_wait(&run->barrier);
	}
	return NULL;
}

/* ---- threads ---- */

/* They wait until all is set up: no thread but the subject's is to appear then. */
static void start_threads(struct run *run, struct pair_thread threads[BENCH_MAX_PAIRS])
{
	pthread_barrier_init(&run->barrier, NULL, run->bench.pairs);
	pthread_barrier_init(&run->begin, NULL, run->bench.pairs + 1);
	for (unsigned i = 0; i < run->bench.pairs; i++) {
		threads[i] = (struct pair_thread){ .run = run, .pair = i };
		if (pthread_create(&threads[i].id, NULL, pair_main, &threads[i]))
			bench_die("no threads");
	}
}

static void find_movers(struct run *run)
{
	meter_find(&run->movers);
	for (unsigned i = 0; run->bench.pin && i < run->movers.count; i++)
		meter_pin(run->movers.ids[i], &run->allowed, i / run->subject->movers);
	meter_count_start(&run->movers);
}

static void run_threads(struct run *run, struct pair_thread threads[BENCH_MAX_PAIRS])
{
	pthread_barrier_wait(&run->begin);
	for (unsigned i = 0; i < run->bench.pairs; i++)
		pthread_join(threads[i].id, NULL);
	pthread_barrier_destroy(&run->barrier);
	pthread_barrier_destroy(&run->begin);
}

/* ---- the result ---- */

static int compare_numbers(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static double median(double *numbers, unsigned count)
{
	qsort(numbers, count, sizeof(*numbers), compare_numbers);
	return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

static void print(struct run *run)
{
	static const char *const backends[] = { "null", "socketpair", "tap" };
	const struct bench *b = &run->bench;
	double cycles_per_ns = meter_cycles_per_ns(&run->rate);
	double cycles = median(run->cycles, run->counted);
	double frames = (double)(run->counted + run->apart) * b->pairs * run->subject->burst;

	printf("{\"subject\": \"%s\", \"backend\": \"%s\", \"ring\": \"%s\", \"dir\": \"%s\", "
	       "\"size\": %u, \"pairs\": %u, ",
	       b->bare ? "bare" : "device", backends[b->backend], b->packed ? "packed" : "split",
	       b->rx ? "rx" : "tx", b->size, b->pairs);
	printf("\"burst\": %u, \"bursts\": %u, \"apart\": %u, \"cycles\": %.2f, \"ns\": %.3f, "
	       "\"mpps\": %.4f, ",
	       run->subject->burst, run->counted, run->apart, cycles, cycles / cycles_per_ns,
	       median(run->frames, run->counted) * cycles_per_ns * 1e3);
	printf("\"cpu_ns\": %.3f, \"cpu_all_ns\": %.3f, \"tsc_mhz\": %.1f, ",
	       (double)run->movers_cpu / frames, (double)run->all_cpu / frames,
	       cycles_per_ns * 1e3);
	if (run->movers.missing)
		printf("\"instructions\": null, \"no_instructions\": \"%s\"}\n",
		       run->movers.missing);
	else
		printf("\"instructions\": %.2f, \"user_only\": %s}\n",
		       (double)run->instructions / frames,
		       run->movers.user_only ? "true" : "false");
}

/* ---- all of it ---- */

static void measure(struct run *run)
{
	struct pair_thread threads[BENCH_MAX_PAIRS];

	sched_getaffinity(0, sizeof(run->allowed), &run->allowed);
	meter_rate_start(&run->rate);
	run->wire = aligned_alloc(_Alignof(struct wire), sizeof(*run->wire));
	run->cycles = calloc(MAX_BURSTS, sizeof(*run->cycles));
	run->frames = calloc(MAX_BURSTS, sizeof(*run->frames));
	if (!run->wire || !run->cycles || !run->frames)
		bench_die("out of memory");
	wire_open(run->wire, &run->bench);
	run->subject = run->bench.bare ? bare_new() : device_new();
	subject_init(run->subject, &run->bench, run->wire);
	start_threads(run, threads);
	meter_mark(&run->movers);
	run->subject->ops->start(run->subject);
	find_movers(run);
	run_threads(run, threads);
	if (!run->bench.rx)
		wire_check_sent(run->wire,
				(uint64_t)run->bursts * run->bench.pairs * run->subject->burst);
	if (!run->counted)
		bench_die("in none of %u bursts the pairs were busy at the same time", run->apart);
	print(run);
	meter_count_end(&run->movers);
	run->subject->ops->stop(run->subject);
	wire_close(run->wire);
	free(run->wire);
	free(run->cycles);
	free(run->frames);
}

static unsigned number(const char *key, const char *text, unsigned min, unsigned max)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || value < min || value > max)
		bench_die("%s=%s: a number from %u to %u is wanted", key, text, min, max);
	return (unsigned)value;
}

/* The index of a word in a list of two or three. */
static unsigned choice(const char *key, const char *text, const char *const words[3])
{
	for (unsigned i = 0; i < 3 && words[i]; i++)
		if (!strcmp(text, words[i]))
			return i;
	bench_die("%s=%s: there is no such %s", key, text, key);
}

static void set(struct bench *b, const char *key, const char *value)
{
	if (!strcmp(key, "backend"))
		b->backend =
			choice(key, value, (const char *const[3]){ "null", "socketpair", "tap" });
	else if (!strcmp(key, "subject"))
		b->bare = choice(key, value, (const char *const[3]){ "device", "bare" });
	else if (!strcmp(key, "ring"))
		b->packed = choice(key, value, (const char *const[3]){ "split", "packed" });
	else if (!strcmp(key, "dir"))
		b->rx = choice(key, value, (const char *const[3]){ "tx", "rx" });
	else if (!strcmp(key, "size"))
		b->size = number(key, value, BENCH_MIN_FRAME, BENCH_MAX_FRAME);
	else if (!strcmp(key, "pairs"))
		b->pairs = number(key, value, 1, BENCH_MAX_PAIRS);
	else if (!strcmp(key, "entries"))
		b->ring = number(key, value, 2, 4096);
	else if (!strcmp(key, "ms"))
		b->ns = number(key, value, 1, 60000) * 1000000ull;
	else if (!strcmp(key, "pin"))
		b->pin = number(key, value, 0, 1);
	else if (!strcmp(key, "net") && strlen(value) < sizeof(b->net) - 1)
		snprintf(b->net, sizeof(b->net), "%s%s", *value ? "," : "", value);
	else
		bench_die("%s=%s: no such option, or too long", key, value);
}

int main(int argc, char **argv)
{
	static struct run run = {
		.bench = { .size = BENCH_MIN_FRAME,
			   .pairs = 1,
			   .ring = 1024,
			   .pin = true,
			   .ns = NS_PER_S / 10 },
	};

	for (int i = 1; i < argc; i++) {
		char *value = strchr(argv[i], '=');

		if (!value) {
			fputs("usage: ring [backend=null|socketpair|tap] [subject=device|bare] "
			      "[ring=split|packed] [dir=tx|rx]\n"
			      "            [size=BYTES] [pairs=N] [entries=N] [ms=N] [pin=0|1] "
			      "[net=KEY=VALUE,...]\n",
			      stderr);
			return 2;
		}
		*value = '\0';
		set(&run.bench, argv[i], value + 1);
	}
	if (run.bench.bare && run.bench.backend == BENCH_NULL)
		bench_die("the null back end has no file for a bare loop");
	measure(&run);
	return 0;
}
