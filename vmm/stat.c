/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine is asked anew for each report. To learn of its end at once, and that another one has
 * taken its name, --watch keeps a pidfd of its process.
 */
#include "vmm/stat.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "vmm/clock.h"
#include "vmm/json_file.h"
#include "vmm/log.h"
#include "vmm/util.h"

/*
 * How long to wait for an answer, in ms: of the one machine that was asked for, and of each in a
 * list.
 */
#define PATIENCE      5000
#define LIST_PATIENCE 1000

/* ---- no such machine ---- */

/* The names of those that run, with commas between them. */
static void list_names(const struct runtime_dir *dir, char *text, size_t size)
{
	unsigned count;
	char **names = runtime_dir_names(dir, &count);
	size_t used = 0;

	text[0] = '\0';
	for (unsigned i = 0; i < count; i++) {
		pid_t pid;
		int fd = runtime_dir_connect(dir, names[i], &pid);

		if (fd >= 0)
			close(fd);
		if (fd >= 0 && used + strlen(names[i]) + 3 < size)
			used += (size_t)snprintf(text + used, size - used, "%s%s",
						 used ? ", " : "", names[i]);
		free(names[i]);
	}
	free(names);
}

static void complain_unknown(const struct runtime_dir *dir, const char *name)
{
	char running[512] = "";

	if (dir->fd >= 0)
		list_names(dir, running, sizeof(running));
	if (running[0])
		log_error("stat %s: no such machine; there are %s", name, running);
	else
		log_error("stat %s: no such machine; none is running (in %s)", name, dir->path);
}

static int remove_stale(struct runtime_dir *dir, const char *name)
{
	int err;

	runtime_dir_lock(dir);
	err = runtime_dir_remove_stale(dir, name);
	runtime_dir_unlock(dir);
	return err;
}

static void complain_gone(struct runtime_dir *dir, const char *name)
{
	int err = remove_stale(dir, name);

	if (err)
		log_error("stat %s: that machine is gone; its socket %s/%s cannot be removed: %s",
			  name, dir->path, name, strerror(-err));
	else
		log_error("stat %s: that machine is gone: it was killed; its socket is now removed",
			  name);
}

static void complain(struct runtime_dir *dir, const char *name, pid_t pid, int err)
{
	switch (-err) {
	case ENOENT:
		complain_unknown(dir, name);
		break;
	case ECONNREFUSED:
		complain_gone(dir, name);
		break;
	case ECONNRESET:
		log_error("stat %s: the machine is ending", name);
		break;
	case ETIMEDOUT:
	case EAGAIN:
		log_error("stat %s: the machine does not answer: is its process %ld stopped?", name,
			  (long)pid);
		break;
	default:
		log_error("stat %s: %s/%s: %s", name, dir->path, name, strerror(-err));
		break;
	}
}

/* ---- all machines ---- */

static json_t *summary(const char *name, pid_t pid, const json_t *object)
{
	return json_pack("{s:s, s:I, s:b}", "machine", name, "pid", (json_int_t)pid, "answers",
			 object != NULL);
}

/*
 * Prints a machine, or adds it to `list` if that is not NULL; one that was killed is cleared away.
 */
static void list_one(struct runtime_dir *dir, const char *name, json_t *list)
{
	json_t *object = NULL;
	pid_t pid = 0;
	int err = stat_fetch(dir, name, LIST_PATIENCE, &object, &pid);

	if (err == -ECONNREFUSED)
		remove_stale(dir, name);
	/* There only if it answers, or at least is there to answer. */
	if (err && err != -ETIMEDOUT && err != -EAGAIN)
		return;
	if (list)
		json_array_append_new(list, summary(name, pid, object));
	else
		stat_print_row(stdout, name, pid, object);
	json_decref(object);
}

static void list_all(struct runtime_dir *dir, json_t *list)
{
	unsigned count = 0;
	char **names = dir->fd >= 0 ? runtime_dir_names(dir, &count) : NULL;

	for (unsigned i = 0; i < count; i++) {
		list_one(dir, names[i], list);
		free(names[i]);
	}
	free(names);
}

static void print_json(const json_t *root, size_t flags)
{
	json_dumpf(root, stdout, flags | JSON_FILE_FLAGS);
	putchar('\n');
}

static int list(struct runtime_dir *dir, bool json)
{
	json_t *array = json ? json_array() : NULL;

	if (!json)
		stat_print_heading(stdout);
	list_all(dir, array);
	if (json)
		print_json(array, JSON_INDENT(2));
	json_decref(array);
	return EXIT_SUCCESS;
}

/* ---- one machine ---- */

static int show(struct runtime_dir *dir, const struct stat_config *config)
{
	json_t *object;
	pid_t pid = 0;
	int err = stat_fetch(dir, config->name, PATIENCE, &object, &pid);

	if (err) {
		complain(dir, config->name, pid, err);
		return EXIT_SETUP;
	}
	if (config->json)
		print_json(object, JSON_INDENT(2));
	else
		stat_print(stdout, object, NULL, 0);
	json_decref(object);
	return EXIT_SUCCESS;
}

/* Ctrl-C is how --watch is meant to end; what was printed is out by then. */
static void interrupted(int number)
{
	(void)number;
	_exit(EXIT_SUCCESS);
}

static double number(const json_t *object, const char *name)
{
	return json_number_value(json_object_get(object, name));
}

static void print_report(const struct stat_config *config, const json_t *now, const json_t *before)
{
	/* A guest that was started again counts from zero. */
	bool same = before && number(before, "boots") == number(now, "boots");

	if (config->json) {
		print_json(now, JSON_COMPACT);
	} else {
		/* On a terminal, each report in the place of the one before. */
		fputs(isatty(STDOUT_FILENO) ? "\033[H\033[J" : before ? "\n" : "", stdout);
		stat_print(stdout, now, same ? before : NULL,
			   before ? number(now, "time") - number(before, "time") :
				    number(now, "up"));
	}
	fflush(stdout);
}

/* Waits for the time of the next report; false when the process ended meanwhile. */
static bool wait_for_next(int pidfd, double due)
{
	struct pollfd process = { .fd = pidfd, .events = POLLIN };

	for (;;) {
		double left = due - clock_seconds();

		if (left <= 0)
			return true;
		/* Without a pidfd it is only a sleep. */
		if (poll(&process, 1, (int)(left * 1000) + 1) == 1)
			return false;
	}
}

/* Until the machine ends, or nobody reads any more. */
static int watch(struct runtime_dir *dir, const struct stat_config *config)
{
	json_t *now = NULL, *before = NULL;
	double due = clock_seconds();
	pid_t first = 0, pid = 0;
	int pidfd = -1, err;

	signal(SIGINT, interrupted);
	do {
		err = stat_fetch(dir, config->name, PATIENCE, &now, &pid);
		if (!before) {
			first = pid;
			pidfd = err ? -1 : pidfd_open(pid, 0);
		}
		if (err || pid != first)
			break;
		print_report(config, now, before);
		json_decref(before);
		before = now;
		now = NULL;
		due += config->watch;
	} while (!ferror(stdout) && wait_for_next(pidfd, due));
	/* After the first report, that it is not there any more is the end and no fault. */
	if (err && (!before || err == -ETIMEDOUT || err == -EAGAIN))
		complain(dir, config->name, pid, err);
	else
		err = 0;
	if (pidfd >= 0)
		close(pidfd);
	json_decref(now);
	json_decref(before);
	return err ? EXIT_SETUP : EXIT_SUCCESS;
}

int stat_main(const struct stat_config *config)
{
	struct runtime_dir dir;
	int err = runtime_dir_open(&dir, false), status;

	if (err && err != -ENOENT) {
		log_error("stat: %s: %s", dir.path, strerror(-err));
		return EXIT_SETUP;
	}
	if (!config->name) {
		status = list(&dir, config->json);
	} else if (err) {
		complain(&dir, config->name, 0, err);
		status = EXIT_SETUP;
	} else {
		status = config->watch ? watch(&dir, config) : show(&dir, config);
	}
	runtime_dir_close(&dir);
	return status;
}
