/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Both sides of `whelp stat`: a server in a loop's thread, in a runtime directory of the test's,
 * and clients that ask it, or find that there is none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/json_file.h"
#include "vmm/stat.h"
#include "vmm/stat_server.h"
#include "vmm/util.h"

#define PATIENCE 60000 /* ms, against a hang only */

struct fixture {
	char root[64];
	char path[80]; /* of the runtime directory */
	struct runtime_dir dir;
	struct worker worker;
	struct stat_server server;
	unsigned size; /* bytes of text in an answer */
	unsigned answers;
};

static json_t *snapshot(void *ctx)
{
	struct fixture *f = ctx;
	char *text = calloc(1, f->size + 1);
	json_t *object;

	memset(text, 'x', f->size);
	object = json_pack("{s:i, s:s}", "answers", (int)++f->answers, "text", text);
	free(text);
	return object;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const char *tmp = getenv("TMPDIR");

	snprintf(f->root, sizeof(f->root), "%.40s/stat.XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(f->root));
	snprintf(f->path, sizeof(f->path), "%s/run", f->root);
	setenv("WHELP_RUNTIME_DIR", f->path, 1);
	assert_int_equal(worker_init(&f->worker, "loop", NULL), 0);
	stat_server_init(&f->server);
	f->dir.fd = -1;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char command[128];

	worker_stop(&f->worker);
	stat_server_close(&f->server);
	worker_fini(&f->worker);
	runtime_dir_close(&f->dir);
	snprintf(command, sizeof(command), "rm -rf %s", f->root);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

/* Runs `open` of a server with its messages in `said`. */
static int open_server(struct stat_server *server, struct fixture *f, const char *name, char *said,
		       size_t size)
{
	int saved = dup(STDERR_FILENO), pipes[2], err;
	ssize_t got;

	assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
	dup2(pipes[1], STDERR_FILENO);
	err = stat_server_open(server, &f->worker.loop, name, snapshot, f);
	dup2(saved, STDERR_FILENO);
	got = read(pipes[0], said, size - 1);
	said[MAX(got, 0)] = '\0';
	close(saved);
	close(pipes[0]);
	close(pipes[1]);
	return err;
}

static void serve(struct fixture *f, const char *name)
{
	char said[512];

	assert_int_equal(open_server(&f->server, f, name, said, sizeof(said)), 0);
	assert_string_equal(said, "");
	assert_int_equal(runtime_dir_open(&f->dir, false), 0);
	assert_int_equal(worker_start(&f->worker), 0);
}

/* The number of the answer, or 0: whichever. Looking whether somebody is there counts, too. */
static void expect_answer(struct fixture *f, const char *name, int answers)
{
	json_t *object = NULL;
	pid_t pid = 0;

	assert_int_equal(stat_fetch(&f->dir, name, PATIENCE, &object, &pid), 0);
	assert_int_equal(pid, getpid());
	if (answers)
		assert_int_equal(json_integer_value(json_object_get(object, "answers")), answers);
	assert_int_equal(json_string_length(json_object_get(object, "text")), f->size);
	json_decref(object);
}

static void test_asked_again_and_again(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	serve(f, "puppy");
	for (int i = 1; i <= 50; i++)
		expect_answer(f, "puppy", i);
	/* The socket and its directory are their owner's alone. */
	assert_int_equal(stat(f->path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(fstatat(f->dir.fd, "puppy", &st, 0), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
}

static void test_a_large_answer(void **state)
{
	struct fixture *f = *state;

	f->size = MIB(4);
	serve(f, "puppy");
	expect_answer(f, "puppy", 1);
}

/* Clients that connect and leave, or stay and never read, are no trouble. */
static void test_clients_that_do_not_wait(void **state)
{
	struct fixture *f = *state;
	int idle[100];
	pid_t pid;

	serve(f, "puppy");
	for (unsigned i = 0; i < ARRAY_SIZE(idle); i++) {
		idle[i] = runtime_dir_connect(&f->dir, "puppy", &pid);
		assert_true(idle[i] >= 0);
		if (i % 2)
			close(idle[i]);
	}
	expect_answer(f, "puppy", ARRAY_SIZE(idle) + 1);
	for (unsigned i = 0; i < ARRAY_SIZE(idle); i += 2)
		close(idle[i]);
}

static void test_no_such_machine(void **state)
{
	struct fixture *f = *state;
	json_t *object;
	pid_t pid;

	assert_int_equal(runtime_dir_open(&f->dir, false), -ENOENT);
	assert_string_equal(f->dir.path, f->path);
	serve(f, "puppy");
	assert_int_equal(stat_fetch(&f->dir, "kitten", PATIENCE, &object, &pid), -ENOENT);
}

/* One that has the name, and does not answer in time. */
static void test_one_that_is_stopped(void **state)
{
	struct fixture *f = *state;
	json_t *object;
	pid_t pid = 0;

	serve(f, "puppy");
	worker_stop(&f->worker);
	assert_int_equal(stat_fetch(&f->dir, "puppy", 1, &object, &pid), -ETIMEDOUT);
	assert_int_equal(pid, getpid());
	stat_server_close(&f->server);
	assert_int_equal(stat_fetch(&f->dir, "puppy", PATIENCE, &object, &pid), -ENOENT);
}

static void test_two_of_a_name(void **state)
{
	struct fixture *f = *state;
	struct stat_server second;
	char said[512], process[64];

	serve(f, "puppy");
	stat_server_init(&second);
	assert_int_equal(open_server(&second, f, "puppy", said, sizeof(said)), -EADDRINUSE);
	snprintf(process, sizeof(process), "(process %ld)", (long)getpid());
	assert_non_null(strstr(said, "--name puppy: a machine of that name is running"));
	assert_non_null(strstr(said, process));
	stat_server_close(&second);
	/* Which does the first one no harm. */
	expect_answer(f, "puppy", 0);
}

static void leave_socket(const struct fixture *f, const char *name)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un address;

	runtime_dir_address(&f->dir, name, &address);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
}

static void test_a_stale_socket_is_replaced(void **state)
{
	struct fixture *f = *state;
	json_t *object;
	pid_t pid;

	assert_int_equal(runtime_dir_open(&f->dir, true), 0);
	leave_socket(f, "puppy");
	leave_socket(f, "kitten");
	assert_int_equal(stat_fetch(&f->dir, "puppy", PATIENCE, &object, &pid), -ECONNREFUSED);
	runtime_dir_close(&f->dir);
	serve(f, "puppy");
	expect_answer(f, "puppy", 1);
	assert_int_equal(runtime_dir_remove_stale(&f->dir, "puppy"), -EBUSY);
	assert_int_equal(runtime_dir_remove_stale(&f->dir, "kitten"), 0);
	assert_int_equal(runtime_dir_remove_stale(&f->dir, "kitten"), 0);
	expect_answer(f, "puppy", 0);
	assert_int_equal(stat_fetch(&f->dir, "kitten", PATIENCE, &object, &pid), -ENOENT);
}

/* A socket that was taken for stale, and replaced by another machine, is not removed at the end. */
static void test_anothers_socket_stays(void **state)
{
	struct fixture *f = *state;
	struct stat st;

	serve(f, "puppy");
	worker_stop(&f->worker);
	assert_int_equal(unlinkat(f->dir.fd, "puppy", 0), 0);
	leave_socket(f, "puppy");
	stat_server_close(&f->server);
	assert_int_equal(fstatat(f->dir.fd, "puppy", &st, 0), 0);
}

/* Whatever keeps a machine from being found: it gets a warning, and runs. */
static void expect_warning(struct fixture *f, const char *why)
{
	char said[4096];

	assert_int_equal(open_server(&f->server, f, "puppy", said, sizeof(said)), 0);
	assert_non_null(strstr(said, "warning: whelp stat will not find this machine"));
	if (!strstr(said, why))
		fail_msg("\"%s\" is not in: %s", why, said);
	assert_ptr_equal(strchr(said, '\n'), said + strlen(said) - 1);
	assert_int_equal(f->server.listener.fd, -1);
}

static void test_directories_that_will_not_do(void **state)
{
	struct fixture *f = *state;
	char target[96], text[16] = { 0 };
	int file;

	setenv("WHELP_RUNTIME_DIR", "/nonexistent/whelp", 1);
	expect_warning(f, "/nonexistent/whelp: No such file");
	setenv("WHELP_RUNTIME_DIR", f->path, 1);
	/* Others may write there. */
	assert_int_equal(mkdir(f->path, 0700), 0);
	assert_int_equal(chmod(f->path, 0770), 0);
	expect_warning(f, "not permitted");
	assert_int_equal(rmdir(f->path), 0);
	/* A link to somewhere. */
	snprintf(target, sizeof(target), "%s/elsewhere", f->root);
	assert_int_equal(mkdir(target, 0700), 0);
	assert_int_equal(symlink(target, f->path), 0);
	expect_warning(f, f->path);
	assert_int_equal(unlink(f->path), 0);
	/* A file of the machine's name is neither used nor removed. */
	assert_int_equal(runtime_dir_open(&f->dir, true), 0);
	file = openat(f->dir.fd, "puppy", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(write(file, "notes", 5), 5);
	expect_warning(f, "File exists");
	assert_int_equal(pread(file, text, sizeof(text), 0), 5);
	assert_int_equal(faccessat(f->dir.fd, "puppy", F_OK, 0), 0);
	close(file);
}

static void test_names(void **state)
{
	static const char *const expected[] = { "a", "b", "c" };
	struct fixture *f = *state;
	unsigned count;
	char **names;

	assert_int_equal(runtime_dir_open(&f->dir, true), 0);
	free(runtime_dir_names(&f->dir, &count));
	assert_int_equal(count, 0);
	leave_socket(f, "c");
	leave_socket(f, "a");
	leave_socket(f, "b");
	close(openat(f->dir.fd, "a-file", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
	assert_int_equal(mkdirat(f->dir.fd, "a-directory", 0700), 0);
	names = runtime_dir_names(&f->dir, &count);
	assert_int_equal(count, ARRAY_SIZE(expected));
	for (unsigned i = 0; i < count; i++) {
		assert_string_equal(names[i], expected[i]);
		free(names[i]);
	}
	free(names);
}

/* The directory's path may be longer than a socket's may be. */
static void test_a_long_path(void **state)
{
	struct fixture *f = *state;
	char path[300];

	snprintf(path, sizeof(path), "%s/%0200d", f->root, 0);
	setenv("WHELP_RUNTIME_DIR", path, 1);
	serve(f, "a-name-that-has-thirty-two-chars");
	expect_answer(f, "a-name-that-has-thirty-two-chars", 1);
}

/* ---- files ---- */

static void test_a_file_appears_whole(void **state)
{
	struct fixture *f = *state;
	json_t *root = json_pack("{s:f}", "time", 1234567.25);
	char path[96], beside[128], long_path[4200];
	struct stat st;
	json_t *loaded;

	snprintf(path, sizeof(path), "%s/stats", f->root);
	snprintf(beside, sizeof(beside), "%s.new", path);
	assert_int_equal(json_file_write(path, root), 0);
	assert_int_equal(stat(beside, &st), -1);
	loaded = json_load_file(path, 0, NULL);
	assert_true(json_equal(loaded, root));
	json_decref(loaded);
	assert_int_equal(json_file_write("/nonexistent/stats", root), -ENOENT);
	assert_int_equal(json_file_write(path, NULL), -ENOMEM);
	memset(long_path, 'x', sizeof(long_path));
	long_path[sizeof(long_path) - 1] = '\0';
	assert_int_equal(json_file_write(long_path, root), -ENAMETOOLONG);
	json_decref(root);
}

int main(void)
{
#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_asked_again_and_again),
		TEST(test_a_large_answer),
		TEST(test_clients_that_do_not_wait),
		TEST(test_no_such_machine),
		TEST(test_one_that_is_stopped),
		TEST(test_two_of_a_name),
		TEST(test_a_stale_socket_is_replaced),
		TEST(test_anothers_socket_stays),
		TEST(test_directories_that_will_not_do),
		TEST(test_names),
		TEST(test_a_long_path),
		TEST(test_a_file_appears_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
