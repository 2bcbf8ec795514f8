/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The command line: every kind of bad input gives one line that names the option, its value and
 * what is allowed; good input ends up in the config; and the manual quotes the help word for word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/liboptions.h"
#include "vmm/options.h"
#include "vmm/options_value.h"
#include "vmm/util.h"

static void test_defaults(void **state)
{
	struct options options = GOOD("run", "--kernel", "vmlinuz");

	(void)state;
	assert_int_equal(options.command, COMMAND_RUN);
	assert_string_equal(options.run.kernel, "vmlinuz");
	assert_string_equal(options.run.cmdline, "console=ttyS0");
	assert_null(options.run.initrd);
	assert_null(options.run.name);
	assert_null(options.run.serial);
	assert_null(options.run.stats);
	assert_int_equal(options.run.cpus, 1);
	assert_int_equal(options.run.memory, MIB(256));
	assert_false(options.run.no_reboot);
	assert_int_equal(options.run.net_count, 0);
}

static void test_everything(void **state)
{
	static const uint8_t mac[6] = { 0x52, 0x54, 0x00, 0xab, 0xCD, 0xef };
	static const uint8_t none[6];
	struct options options = GOOD(
		"run", "--memory=8G", "--kernel=a=b", "--initrd", "i", "--cmdline", "--", "--cpus",
		"254", "--net", "mtu=68,mac=52:54:00:ab:CD:ef,tap=tap0", "--name", "A.b-c_9",
		"--serial=/run/s", "--stats", "s", "--no-reboot", "--net=tap=abcdefghijklmno");

	(void)state;
	assert_string_equal(options.run.kernel, "a=b");
	assert_string_equal(options.run.initrd, "i");
	assert_string_equal(options.run.cmdline, "--");
	assert_string_equal(options.run.name, "A.b-c_9");
	assert_string_equal(options.run.serial, "/run/s");
	assert_string_equal(options.run.stats, "s");
	assert_int_equal(options.run.cpus, 254);
	assert_int_equal(options.run.memory, GIB(8));
	assert_true(options.run.no_reboot);
	assert_int_equal(options.run.net_count, 2);
	assert_string_equal(options.run.nets[0].tap, "tap0");
	assert_memory_equal(options.run.nets[0].mac, mac, 6);
	assert_int_equal(options.run.nets[0].mtu, 68);
	assert_string_equal(options.run.nets[1].tap, "abcdefghijklmno");
	assert_memory_equal(options.run.nets[1].mac, none, 6);
	assert_int_equal(options.run.nets[1].mtu, 0);
}

/* An empty command line is one that the kernel takes. */
static void test_h21_empty_cmdline(void **state)
{
	(void)state;
	assert_string_equal(GOOD("run", "--kernel", "k", "--cmdline", "").run.cmdline, "");
	assert_string_equal(GOOD("run", "--kernel", "k", "--cmdline=").run.cmdline, "");
	assert_string_equal(GOOD("run", "--kernel", "k", "--cmdline=--cpus").run.cmdline, "--cpus");
}

static void test_memory_units(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} rows[] = {
		{ "64", MIB(64) },
		{ "64M", MIB(64) },
		{ "64m", MIB(64) },
		{ "64MiB", MIB(64) },
		{ "65536K", MIB(64) },
		{ "65540KiB", KIB(65540) },
		{ "3584M", MIB(3584) },
		{ "4GiB", GIB(4) },
		{ "4194308K", KIB(4194308) },
		{ "4194300K", KIB(4194300) },
		{ "512g", GIB(512) },
		{ "0512M", MIB(512) },
		{ "524288", GIB(512) },
		{ "536870912K", GIB(512) },
	};
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		struct options options = GOOD("run", "--kernel", "k", "--memory", rows[i].text);

		assert_int_equal(options.run.memory, rows[i].bytes);
	}
}

struct topic_case {
	const char *args[4];
	const char *topic;
};

static void test_topic(void **state)
{
	const struct topic_case *row = *state;
	struct options options = liboptions_good(row->args);

	assert_int_equal(options.command, COMMAND_HELP);
	if (row->topic)
		assert_string_equal(options.help_topic, row->topic);
	else
		assert_null(options.help_topic);
}

#define TOPIC(name, topic, ...)                                                                    \
	{                                                                                          \
		name, test_topic, NULL, NULL, (void *)&(struct topic_case)                         \
		{                                                                                  \
			{ __VA_ARGS__ }, topic                                                     \
		}                                                                                  \
	}

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(GOOD("--version").command, COMMAND_VERSION);
	assert_int_equal(GOOD("run", "--version").command, COMMAND_VERSION);
	assert_int_equal(GOOD("doctor", "--version").command, COMMAND_VERSION);
}

static void test_doctor(void **state)
{
	struct options options = GOOD("doctor", "--json");

	(void)state;
	assert_int_equal(options.command, COMMAND_DOCTOR);
	assert_true(options.json);
	assert_false(GOOD("doctor").json);
}

static void test_stat(void **state)
{
	struct options options = GOOD("stat");

	(void)state;
	assert_int_equal(options.command, COMMAND_STAT);
	assert_null(options.stat.name);
	assert_false(options.stat.json);
	assert_int_equal(options.stat.watch, 0);
	options = GOOD("stat", "--json", "A.b-c_9", "--watch");
	assert_string_equal(options.stat.name, "A.b-c_9");
	assert_true(options.stat.json);
	assert_int_equal(options.stat.watch, 1);
	/* What stands behind --watch is the machine. */
	options = GOOD("stat", "--watch", "7");
	assert_string_equal(options.stat.name, "7");
	assert_int_equal(options.stat.watch, 1);
	assert_int_equal(GOOD("stat", "m", "--watch=3600").stat.watch, 3600);
}

static void test_quote(void **state)
{
	char quoted[QUOTED_BYTES], text[400];

	(void)state;
	assert_string_equal(value_quote(quoted, "a\nb\x1b[2J\x7f"), "\"a?b?[2J?\"");
	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	value_quote(quoted, text);
	assert_int_equal(strlen(quoted), QUOTED_BYTES - 1);
	assert_string_equal(quoted + QUOTED_BYTES - 1 - 5, "x...\"");
}

static char *read_file(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;

	if (!file)
		fail_msg("%s: %s (run from the project's root)", path, strerror(errno));
	assert_true(getdelim(&text, &size, '\0', file) > 0);
	fclose(file);
	return text;
}

/* docs/options.md quotes the help of every topic, in a fence. */
static void test_manual(void **state)
{
	static const char *const topics[] = { NULL, "run", "net", "stat", "doctor" };
	char *manual = read_file("docs/options.md");
	size_t i;

	(void)state;
	for (i = 0; i < ARRAY_SIZE(topics); i++) {
		char *text = NULL, *fenced = NULL;
		size_t size;
		FILE *out = open_memstream(&text, &size);

		options_help(out, topics[i]);
		fclose(out);
		assert_true(asprintf(&fenced, "```text\n%s```\n", text) > 0);
		if (!strstr(manual, fenced))
			fail_msg("docs/options.md does not quote this help:\n%s", text);
		free(fenced);
		free(text);
	}
	free(manual);
}

/* The help's numbers are written out: they must be the limits. */
static void test_help_limits(void **state)
{
	char *text = NULL, expected[80];
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	options_help(out, "run");
	options_help(out, "net");
	fclose(out);
	snprintf(expected, sizeof(expected), "1 to %d (default: 1)", OPTIONS_MAX_CPUS);
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "64M to %lluG in",
		 (unsigned long long)(OPTIONS_MAX_MEMORY >> 30));
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "each NIC, %d at", OPTIONS_MAX_NETS);
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "%d to %d (default: none", OPTIONS_MIN_MTU,
		 OPTIONS_MAX_MTU);
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "queue pairs, 1 to %d; the", OPTIONS_MAX_QUEUES);
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "in each ring, %d to %d; a", OPTIONS_MIN_RING,
		 OPTIONS_MAX_RING);
	assert_non_null(strstr(text, expected));
	snprintf(expected, sizeof(expected), "takes it (default: %d)", OPTIONS_RING);
	assert_non_null(strstr(text, expected));
	free(text);
}

#define LONG_NAME "abcdefghijklmnopqrstuvwxyzabcdefg" /* 33 */
#define LONG_PATH                                                                                  \
	"/123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
	"89012345678901234567" /* 108 */

static const struct CMUnitTest tests[] = {
	BAD("no command", LIST(NULL), LIST("no command", "whelp help")),
	BAD("unknown command", LIST("boot"), LIST("\"boot\"", "run, stat, doctor and help")),
	BAD("misspelt command", LIST("docter"), LIST("\"docter\"", "did you mean doctor?")),
	BAD("option before command", LIST("--kernel", "k"), LIST("\"--kernel\"", "whelp --help")),
	BAD("stray after --version", LIST("--version", "x"), LIST("\"x\"", "stray")),
	BAD("unknown option", LIST("run", "--frobnicate"),
	    LIST("\"--frobnicate\"", "unknown option", "whelp run --help")),
	BAD("misspelt option", LIST("run", "--kernal=k"),
	    LIST("\"--kernal=k\"", "unknown option", "did you mean --kernel?")),
	BAD("one dash", LIST("run", "-cpus", "2"), LIST("\"-cpus\"", "did you mean --cpus?")),
	BAD("abbreviated option", LIST("run", "--kern", "k"), LIST("\"--kern\"", "--kernel")),
	BAD("option with a tail", LIST("run", "--cpusx=2"), LIST("\"--cpusx=2\"", "--cpus?")),
	BAD("run option of doctor", LIST("doctor", "--kernel", "k"),
	    LIST("\"--kernel\"", "unknown option", "whelp doctor --help")),
	BAD("stray argument", LIST("run", "--kernel", "k", "x"), LIST("\"x\"", "stray argument")),
	BAD("stray empty argument", LIST("run", "--kernel", "k", ""), LIST("\"\"", "stray")),
	BAD("stray argument of doctor", LIST("doctor", "x"), LIST("\"x\"", "stray argument")),
	BAD("unknown help topic", LIST("help", "me"), LIST("\"me\"", "run, stat, doctor and net")),
	BAD("stray after help", LIST("help", "run", "x"), LIST("\"x\"", "stray")),
	BAD("option of help", LIST("help", "--json"), LIST("\"--json\"", "unknown option")),
	BAD("no kernel", LIST("run"), LIST("--kernel", "FILE")),
	BAD("missing last value", LIST("run", "--kernel", "k", "--cpus"),
	    LIST("--cpus", "needs a value", "--cpus=N")),
	BAD("option as value", LIST("run", "--kernel", "--cpus", "2"),
	    LIST("--kernel", "needs a value", "--kernel=FILE")),
	BAD("option=value as value", LIST("run", "--kernel", "--cpus=2"),
	    LIST("--kernel", "needs a value")),
	BAD("--help as value", LIST("run", "--kernel", "--help"),
	    LIST("--kernel", "needs a value")),
	BAD("flag with value", LIST("run", "--no-reboot=yes"),
	    LIST("--no-reboot", "\"yes\"", "takes no value")),
	BAD("kernel twice", LIST("run", "--kernel", "a", "--kernel", "b"),
	    LIST("--kernel", "\"b\"", "twice")),
	BAD("cpus twice", LIST("run", "--cpus=2", "--kernel", "b", "--cpus=2"),
	    LIST("--cpus", "\"2\"", "twice")),
	BAD("flag twice", LIST("run", "--no-reboot", "--no-reboot"),
	    LIST("--no-reboot: ", "twice")),
	BAD("empty kernel", LIST("run", "--kernel="), LIST("--kernel", "\"\"", "empty", "FILE")),
	BAD_RUN("empty initrd", "--initrd", "", "empty", "FILE"),
	BAD_RUN("empty cpus", "--cpus", "", "empty", "N"),
	BAD_RUN("empty memory", "--memory", "", "empty", "SIZE"),
	BAD_RUN("empty net", "--net", "", "empty", "KEY=VALUE"),
	BAD_RUN("empty name", "--name", "", "empty", "NAME"),
	BAD_RUN("empty serial", "--serial", "", "empty", "PATH"),

	BAD_RUN("cpus 0", "--cpus", "0", "\"0\"", "1 to 254"),
	BAD_RUN("cpus 255", "--cpus", "255", "\"255\"", "1 to 254"),
	BAD_RUN("cpus beyond 2^32", "--cpus", "4294967297", "\"4294967297\"", "1 to 254"),
	BAD_RUN("cpus beyond 2^64", "--cpus", "18446744073709551617", "1 to 254"),
	BAD_RUN("cpus very long", "--cpus", "1844674407370955161700000000000001", "1 to 254"),
	BAD_RUN("cpus negative", "--cpus", "-1", "\"-1\"", "1 to 254"),
	BAD_RUN("cpus signed", "--cpus", "+1", "\"+1\"", "1 to 254"),
	BAD_RUN("cpus blank", "--cpus", " 1", "\" 1\"", "1 to 254"),
	BAD_RUN("cpus trailing", "--cpus", "2x", "\"2x\"", "1 to 254"),
	BAD_RUN("cpus hexadecimal", "--cpus", "0x2", "\"0x2\"", "1 to 254"),
	BAD_RUN("cpus fraction", "--cpus", "1.5", "\"1.5\"", "1 to 254"),

	BAD_RUN("memory too small", "--memory", "65532K", "\"65532K\"", "from 64M to 512G"),
	BAD_RUN("memory too large", "--memory", "536870916K", "from 64M to 512G"),
	BAD_RUN("memory 0", "--memory", "0", "\"0\"", "from 64M to 512G"),
	BAD_RUN("memory beyond 2^64", "--memory", "17179869184G", "from 64M to 512G"),
	BAD_RUN("memory digits beyond 2^64", "--memory", "18446744073709551680K", "64M to 512G"),
	BAD_RUN("memory unaligned", "--memory", "65538K", "\"65538K\"", "multiple of 4K"),
	BAD_RUN("memory unit B", "--memory", "268435456B", "\"B\"", "K, M, G", "MiB"),
	BAD_RUN("memory unit MB", "--memory", "256MB", "\"MB\"", "K, M, G", "MiB"),
	BAD_RUN("memory unit T", "--memory", "1T", "\"T\"", "K, M, G"),
	BAD_RUN("memory unit after blank", "--memory", "256 M", "\" M\"", "K, M, G"),
	BAD_RUN("memory two units", "--memory", "1G512M", "\"G512M\"", "K, M, G"),
	BAD_RUN("memory fraction", "--memory", "1.5G", "\"1.5G\"", "whole number"),
	BAD_RUN("memory negative", "--memory", "-256M", "\"-256M\"", "whole number"),
	BAD_RUN("memory only a unit", "--memory", "G", "\"G\"", "whole number"),

	BAD_RUN("name with a blank", "--name", "a b", "\"a b\"", "1 to 32"),
	BAD_RUN("name with a slash", "--name", "../x", "\"../x\"", "1 to 32"),
	BAD_RUN("name with a newline", "--name", "a\nb", "\"a?b\"", "1 to 32"),
	BAD_RUN("name too long", "--name", LONG_NAME, LONG_NAME, "1 to 32"),
	BAD_RUN("serial too long", "--serial", LONG_PATH, "at most 107"),

	BAD("stat without a name", LIST("stat", "--watch"), LIST("--watch", "which machine")),
	BAD("stat of two", LIST("stat", "a", "b"), LIST("\"b\"", "stray argument", "stat --help")),
	BAD("stat of no name", LIST("stat", "a/b"), LIST("stat \"a/b\"", "1 to 32")),
	BAD("stat of an empty name", LIST("stat", ""), LIST("stat \"\"", "1 to 32")),
	BAD("watch too often", LIST("stat", "a", "--watch=0"), LIST("--watch \"0\"", "1 to 3600")),
	BAD("watch too seldom", LIST("stat", "a", "--watch=3601"), LIST("--watch", "1 to 3600")),
	BAD("watch of nothing", LIST("stat", "a", "--watch="), LIST("--watch", "empty")),
	BAD("run option of stat", LIST("stat", "--name", "k"),
	    LIST("\"--name\"", "unknown option", "whelp stat --help")),

	TOPIC("whelp help", NULL, "help"),
	TOPIC("whelp --help", NULL, "--help"),
	TOPIC("whelp -h", NULL, "-h"),
	TOPIC("whelp help --help", NULL, "help", "--help"),
	TOPIC("whelp help run", "run", "help", "run"),
	TOPIC("whelp help stat", "stat", "help", "stat"),
	TOPIC("whelp help doctor", "doctor", "help", "doctor"),
	TOPIC("whelp help net", "net", "help", "net"),
	TOPIC("whelp run --help", "run", "run", "--help"),
	TOPIC("whelp run -h", "run", "run", "-h"),
	TOPIC("whelp run --cpus 2 --help", "run", "run", "--cpus=2", "--help"),
	TOPIC("whelp run --net help", "net", "run", "--net", "help"),
	TOPIC("whelp run --net=help", "net", "run", "--net=help"),
	TOPIC("whelp stat --help", "stat", "stat", "--help"),
	TOPIC("whelp stat NAME --help", "stat", "stat", "a", "--help"),
	TOPIC("whelp doctor --help", "doctor", "doctor", "--help"),

	cmocka_unit_test(test_defaults),
	cmocka_unit_test(test_everything),
	cmocka_unit_test(test_h21_empty_cmdline),
	cmocka_unit_test(test_memory_units),
	cmocka_unit_test(test_version),
	cmocka_unit_test(test_doctor),
	cmocka_unit_test(test_stat),
	cmocka_unit_test(test_quote),
	cmocka_unit_test(test_manual),
	cmocka_unit_test(test_help_limits),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
