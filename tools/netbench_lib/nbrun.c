// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Runs several sessions of a load program at once, on the host or in a guest, and tells exactly when they ran.
 *
 *	nbrun snap FILE
 *	nbrun run MODE COUNT WINDOW LIMIT SNAP COMMAND [ARGUMENT...]
 *
 * snap writes the kernel's statistics to FILE, each file's text below "== TIME NAME".
 *
 * run starts COUNT processes, "%i" as an argument being the session's number and "%p" a port of its own. They wait
 * at a barrier until all of them have been forked. What is measured is a window of WINDOW milliseconds that begins
 * only when every session has been seen at work, and they are ended only when each has been seen to work on beyond
 * its end: so each ran all the time that counts, however long their starts took. MODE says how work is seen:
 *
 *	netperf  lines of netperf's -D: a figure, for how long, and when that ended
 *	iperf3   lines of iperf3's -i: a figure, from when to when by its own clock, which the first line's arrival sets
 *	timed    not at all: a session works while it runs; what it prints, also when it is ended, is passed on
 *	whole    likewise, but for programs that sum up all of their life: they live for the window only, and are
 *	         ended with it
 *
 * Except in mode whole, the load is on from before the first word that is said here until after the last one that is
 * read, so whoever started nbrun may look at things at leisure in between. It reads words from stdin, a line each:
 *
 *	running				written: all sessions are at work
 *	go				read: the window begins
 *	begin TIME			written, at once; end TIME when it is over
 *	stop				read: the sessions are ended
 *	out NUMBER LINE			what a session printed: all in modes timed and whole, else its last words if it
 *					ended early
 *	session NUMBER FIRST LAST COVERED RATE STATUS
 *					when it was seen at work; how much of the window that covers, in seconds; the
 *					mean figure in it; its exit status if it ended early, else 0
 *	done
 *
 * If not all sessions were seen at work, or one ended early, what is left of running, begin and end does not come.
 * At the window's ends statistics go to SNAP.begin and SNAP.end ("-": none). Times are of CLOCK_REALTIME, in seconds.
 * LIMIT, in milliseconds, bounds each wait: for work to be seen, and for a word.
 *
 * Exit status: 0 as above; 1 with one line on stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_SESSIONS	1024
#define BASE_PORT	5201
/* Seconds that a session of mode timed gets to start. */
#define SETTLE		0.2

enum mode { NETPERF, IPERF3, TIMED, WHOLE, MODES };
static const char *const mode_names[MODES] = { "netperf", "iperf3", "timed", "whole" };

struct interval {
	double start, end, rate;
};

struct session {
	pid_t pid;
	int fd;
	int status;
	bool ended;
	bool early;
	double first, last, zero;
	struct interval *intervals;
	size_t count, room;
	char line[512];
	size_t used;
	char last_line[512];
};

struct run {
	enum mode mode;
	int count;
	int barrier;
	double window, limit, started, begin, end;
	const char *snap;
	bool listening;
	char word[16];
	size_t word_used;
	bool heard;
	struct session *sessions;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
	va_list list;

	fputs("nbrun: ", stderr);
	va_start(list, format);
	vfprintf(stderr, format, list);
	va_end(list);
	fputc('\n', stderr);
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

/* ---- statistics ---- */

static void put_statistics(FILE *out, const char *name)
{
	char buffer[16384];
	ssize_t got;
	int fd = open(name, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return;
	fprintf(out, "== %.6f %s\n", now(), name);
	while ((got = read(fd, buffer, sizeof(buffer))) > 0)
		fwrite(buffer, 1, got, out);
	close(fd);
}

static void snapshot(const char *path)
{
	static const char *const names[] = {
		"/proc/stat", "/proc/net/dev", "/proc/interrupts", "/proc/softirqs", "/proc/net/snmp",
		"/proc/net/netstat",
	};
	FILE *out = fopen(path, "we");

	if (!out)
		die("%s: %s", path, strerror(errno));
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		put_statistics(out, names[i]);
	if (fclose(out))
		die("%s: %s", path, strerror(errno));
}

static void snapshot_at(const struct run *run, const char *suffix)
{
	char path[4096];

	if (!strcmp(run->snap, "-"))
		return;
	snprintf(path, sizeof(path), "%s.%s", run->snap, suffix);
	snapshot(path);
}

/* ---- sessions ---- */

static const char *filled(const char *argument, int number)
{
	char *text = malloc(strlen(argument) + 16);
	char place = argument[0] == '%' ? argument[1] : 0;

	if (!text)
		die("no memory");
	if (place == 'i' && !argument[2])
		sprintf(text, "%d", number);
	else if (place == 'p' && !argument[2])
		sprintf(text, "%d", BASE_PORT + number);
	else
		strcpy(text, argument);
	return text;
}

__attribute__((noreturn)) static void become(char **command, int number, int barrier, int out)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* A shell that starts something in the background has it ignore this. */
	signal(SIGINT, SIG_DFL);
	for (char **argument = command; *argument; argument++)
		*argument = (char *)filled(*argument, number);
	dup2(out, STDOUT_FILENO);
	dup2(out, STDERR_FILENO);
	/* End of file: all have been forked. */
	if (read(barrier, &byte, 1))
		_exit(126);
	execvp(command[0], command);
	dprintf(STDOUT_FILENO, "cannot run %s: %s\n", command[0], strerror(errno));
	_exit(127);
}

static void start(struct run *run, char **command)
{
	int barrier[2], out[2];

	if (pipe2(barrier, O_CLOEXEC))
		die("no pipe: %s", strerror(errno));
	for (int i = 0; i < run->count; i++) {
		struct session *session = &run->sessions[i];

		if (pipe2(out, O_CLOEXEC))
			die("no pipe for session %d: %s", i, strerror(errno));
		session->pid = fork();
		if (session->pid < 0)
			die("cannot start session %d: %s", i, strerror(errno));
		if (!session->pid) {
			close(barrier[1]);
			become(command, i, barrier[0], out[1]);
		}
		close(out[1]);
		fcntl(out[0], F_SETFL, O_NONBLOCK);
		session->fd = out[0];
	}
	close(barrier[0]);
	run->barrier = barrier[1];
}

static void release(struct run *run)
{
	run->started = now();
	close(run->barrier);
}

static void add_interval(struct session *session, double start, double end, double rate)
{
	if (!session->first)
		session->first = start;
	session->last = end;
	if (session->count == session->room) {
		session->room = session->room ? 2 * session->room : 16;
		session->intervals = realloc(session->intervals, session->room * sizeof(*session->intervals));
		if (!session->intervals)
			die("no memory");
	}
	session->intervals[session->count++] = (struct interval){ start, end, rate };
}

/* "[  5]   0.30-0.40   sec  12.5 MBytes  1049 Mbits/sec ...": its clock began when it says, before the first line came. */
static void take_iperf3_line(struct session *session, const char *line)
{
	double from, to, rate;
	const char *unit = strstr(line, " Mbits/sec");
	const char *start = strchr(line, ']');

	if (!unit || !start || strstr(line, "sender") || strstr(line, "receiver"))
		return;
	if (sscanf(start + 1, " %lf-%lf sec", &from, &to) != 2)
		return;
	while (unit > line && unit[-1] != ' ')
		unit--;
	if (sscanf(unit, "%lf", &rate) != 1)
		return;
	if (!session->zero)
		session->zero = now() - to;
	add_interval(session, session->zero + from, session->zero + to, rate);
}

static void take_line(struct run *run, struct session *session)
{
	double rate, seconds, end;
	const char *line = session->line;

	if (*line)
		strcpy(session->last_line, line);
	if (run->mode == NETPERF &&
	    sscanf(line, "Interim result: %lf %*s over %lf seconds ending at %lf", &rate, &seconds, &end) == 3)
		add_interval(session, end - seconds, end, rate);
	else if (run->mode == IPERF3)
		take_iperf3_line(session, line);
	else if (run->mode >= TIMED)
		printf("out %d %s\n", (int)(session - run->sessions), line);
}

static void take_bytes(struct run *run, struct session *session, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if (bytes[i] == '\n' || session->used == sizeof(session->line) - 1) {
			session->line[session->used] = 0;
			session->used = 0;
			take_line(run, session);
		}
		if (bytes[i] != '\n' && bytes[i] != '\r')
			session->line[session->used++] = bytes[i];
	}
}

/* Reads what there is; at the end of the output takes the exit status. */
static void pump_session(struct run *run, struct session *session)
{
	char bytes[4096];
	ssize_t got;

	while ((got = read(session->fd, bytes, sizeof(bytes))) > 0)
		take_bytes(run, session, bytes, got);
	if (got < 0 && errno == EAGAIN)
		return;
	take_bytes(run, session, "\n", session->used ? 1 : 0);
	close(session->fd);
	session->fd = -1;
	session->ended = true;
	if (run->mode >= TIMED)
		session->last = now();
	while (waitpid(session->pid, &session->status, 0) < 0 && errno == EINTR)
		;
}

/* A byte at a time: what follows a line is for later. */
static void hear(struct run *run)
{
	char byte;

	if (read(STDIN_FILENO, &byte, 1) != 1)
		die("whoever started this is gone");
	if (byte == '\n') {
		run->word[run->word_used] = 0;
		run->word_used = 0;
		run->heard = true;
		run->listening = false;
	} else if (run->word_used < sizeof(run->word) - 1) {
		run->word[run->word_used++] = byte;
	}
}

/* Handles output until `until` at the latest; returns when there was some. */
static void pump(struct run *run, double until)
{
	struct pollfd polls[MOST_SESSIONS + 1];
	double left = until - now();

	for (int i = 0; i < run->count; i++)
		polls[i] = (struct pollfd){ .fd = run->sessions[i].fd, .events = POLLIN };
	polls[run->count] = (struct pollfd){ .fd = run->listening ? STDIN_FILENO : -1, .events = POLLIN };
	if (poll(polls, run->count + 1, left > 0 ? (int)(left * 1e3) + 1 : 0) <= 0)
		return;
	if (polls[run->count].revents)
		hear(run);
	for (int i = 0; i < run->count; i++)
		if (polls[i].revents)
			pump_session(run, &run->sessions[i]);
}

/* How many sessions have worked until `when`, or, with 0, at all. -1 if one ended before that. */
static int seen_until(const struct run *run, double when)
{
	int seen = 0;

	for (int i = 0; i < run->count; i++) {
		const struct session *session = &run->sessions[i];

		if (session->first && session->last >= when)
			seen++;
		else if (session->ended)
			return -1;
	}
	return seen;
}

static bool any_alive(const struct run *run)
{
	for (int i = 0; i < run->count; i++)
		if (!run->sessions[i].ended)
			return true;
	return false;
}

/* False if that did not come about. */
static bool wait_seen(struct run *run, double when)
{
	double limit = now() + run->limit;
	int seen;

	while ((seen = seen_until(run, when)) < run->count && seen >= 0 && now() < limit)
		pump(run, limit);
	return seen == run->count;
}

static void wait_word(struct run *run, const char *word)
{
	double limit = now() + run->limit;

	run->heard = false;
	run->listening = true;
	while (!run->heard && now() < limit)
		pump(run, limit);
	if (!run->heard || strcmp(run->word, word))
		die("was not told to %s", word);
}

static void pump_until(struct run *run, double when)
{
	while (now() < when)
		pump(run, when);
}

static void stop(struct run *run)
{
	/* ping tells its figures at SIGINT. */
	for (int signal = run->mode >= TIMED ? SIGINT : SIGTERM;; signal = SIGKILL) {
		double limit = now() + 10;

		for (int i = 0; i < run->count; i++)
			if (!run->sessions[i].ended)
				kill(run->sessions[i].pid, signal);
		while (any_alive(run) && now() < limit)
			pump(run, limit);
		if (!any_alive(run))
			return;
		if (signal == SIGKILL)
			die("a session does not end");
	}
}

static void mark(const char *what, double when)
{
	printf("%s %.6f\n", what, when);
	fflush(stdout);
}

/* Modes timed and whole: all that runs is at work, from the start until now. */
static void assume_work(struct run *run)
{
	for (int i = 0; i < run->count; i++) {
		struct session *session = &run->sessions[i];

		if (!session->first)
			session->first = run->started;
		if (!session->ended)
			session->last = now();
	}
}

static void note_early(struct run *run)
{
	for (int i = 0; i < run->count; i++)
		run->sessions[i].early = run->sessions[i].ended;
}

static void measure_whole(struct run *run)
{
	mark("running", now());
	wait_word(run, "go");
	snapshot_at(run, "begin");
	release(run);
	run->begin = run->started;
	mark("begin", run->begin);
	pump_until(run, run->begin + run->window);
	note_early(run);
	assume_work(run);
	run->end = now();
	stop(run);
	mark("end", run->end);
	snapshot_at(run, "end");
	wait_word(run, "stop");
}

static void measure(struct run *run)
{
	release(run);
	if (run->mode == TIMED) {
		pump_until(run, now() + SETTLE);
		assume_work(run);
	}
	if (!wait_seen(run, 0))
		return;
	mark("running", now());
	wait_word(run, "go");
	run->begin = now();
	mark("begin", run->begin);
	snapshot_at(run, "begin");
	pump_until(run, run->begin + run->window);
	run->end = now();
	mark("end", run->end);
	snapshot_at(run, "end");
	wait_word(run, "stop");
	if (run->mode == TIMED)
		assume_work(run);
	wait_seen(run, run->end);
}

static void report(struct run *run)
{
	for (int i = 0; i < run->count; i++) {
		struct session *session = &run->sessions[i];
		double covered = 0, work = 0;
		int status = 0;

		if (run->mode >= TIMED)
			add_interval(session, session->first, session->last, 0);
		for (size_t k = 0; k < session->count; k++) {
			const struct interval *interval = &session->intervals[k];
			double from = interval->start > run->begin ? interval->start : run->begin;
			double to = interval->end < run->end ? interval->end : run->end;

			if (to > from) {
				covered += to - from;
				work += (to - from) * interval->rate;
			}
		}
		if (session->early)
			status = WIFSIGNALED(session->status) ? 128 + WTERMSIG(session->status) :
				 WEXITSTATUS(session->status);
		if (run->mode < TIMED && session->early)
			printf("out %d %s\n", i, session->last_line);
		printf("session %d %.6f %.6f %.6f %.4f %d\n", i, session->first, session->last, covered,
		       covered > 0 ? work / covered : 0, status);
	}
	puts("done");
}

static double milliseconds(const char *text)
{
	char *rest;
	double value = strtod(text, &rest);

	if (*rest || value < 0 || value > 1e9)
		die("%s: not a number of milliseconds", text);
	return value / 1e3;
}

static void run_sessions(char **argv)
{
	struct run run = { .count = atoi(argv[1]), .window = milliseconds(argv[2]),
			   .limit = milliseconds(argv[3]), .snap = argv[4] };

	while (run.mode < MODES && strcmp(argv[0], mode_names[run.mode]))
		run.mode++;
	if (run.mode == MODES)
		die("there is no mode %s", argv[0]);
	if (run.count < 1 || run.count > MOST_SESSIONS)
		die("1 to %d sessions, not %s", MOST_SESSIONS, argv[1]);
	run.sessions = calloc(run.count, sizeof(*run.sessions));
	if (!run.sessions)
		die("no memory");
	start(&run, argv + 5);
	if (run.mode == WHOLE) {
		measure_whole(&run);
	} else {
		measure(&run);
		note_early(&run);
		stop(&run);
	}
	report(&run);
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "snap"))
		snapshot(argv[2]);
	else if (argc >= 8 && !strcmp(argv[1], "run"))
		run_sessions(argv + 2);
	else
		die("usage: nbrun snap FILE | nbrun run MODE COUNT WINDOW LIMIT SNAP COMMAND [ARGUMENT...]");
	return 0;
}
