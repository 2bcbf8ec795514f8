/* SPDX-License-Identifier: GPL-2.0-or-later */
/* The tables of `whelp stat`, from objects as machines send them, and as they should not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "vmm/stat.h"
#include "vmm/util.h"

#define QUEUE(packets, bytes, batches, kicks, interrupts, dropped, waits)                          \
	"{\"packets\": " #packets ", \"bytes\": " #bytes ", \"batches\": " #batches                \
	", \"kicks\": " #kicks ", \"interrupts\": " #interrupts ", \"dropped\": " #dropped         \
	", \"waits\": " #waits "}"

static const char early[] =
	"{\"machine\": \"puppy\", \"pid\": 77, \"time\": 100.5, \"up\": 10.2, \"boots\": 1,"
	" \"cpus\": [{\"exits\": {\"io_out\": 30, \"io_in\": 0, \"signal\": 2},"
	"             \"devices\": {\"serial\": 30}, \"kvm\": {\"exits\": 5000, \"pf_taken\": 3}}],"
	" \"nics\": [{\"name\": \"net0\", \"backend\": \"tap7\","
	"             \"rx\": " QUEUE(1000, 64000, 100, 10, 50, 3, 4) ","
	"             \"tx\": " QUEUE(0, 0, 0, 0, 0, 0, 0) ","
	"             \"pairs\": [{\"rx\": {}, \"tx\": {}}]}]}";

static const char late[] =
	"{\"machine\": \"puppy\", \"pid\": 77, \"time\": 104.5, \"up\": 14.2, \"boots\": 1,"
	" \"cpus\": [{\"exits\": {\"io_out\": 70, \"io_in\": 0, \"signal\": 2},"
	"             \"devices\": {\"serial\": 60, \"pci\": 10}, \"kvm\": null}],"
	" \"nics\": [{\"name\": \"net0\", \"backend\": \"tap7\","
	"             \"rx\": " QUEUE(5000, 464000, 200, 30, 250, 5, 4) ","
	"             \"tx\": " QUEUE(8, 480, 8, 8, 8, 0, 0) ","
	"             \"pairs\": [{\"rx\": {}, \"tx\": {}}]}]}";

static const char two_pairs[] =
	"{\"nics\": [{\"name\": \"net0\", \"backend\": \"tap7\","
	" \"rx\": {\"packets\": 3}, \"tx\": {},"
	" \"pairs\": [{\"rx\": {\"packets\": 1}, \"tx\": {}},"
	"             {\"rx\": {\"packets\": 2}, \"tx\": {}}]}]}";

static char *print(const char *now, const char *before, double seconds)
{
	json_t *newer = json_loads(now, 0, NULL);
	json_t *older = before ? json_loads(before, 0, NULL) : NULL;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(newer);
	assert_true(!before || older);
	stat_print(out, newer, older, seconds);
	fclose(out);
	json_decref(newer);
	json_decref(older);
	return text;
}

/* Turns each run of blanks into one. */
static void squeeze(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++)
		if (*from != ' ' || from[1] != ' ')
			*to++ = *from;
	*to = '\0';
}

static void expect(char *text, const char *const *lines)
{
	squeeze(text);
	for (; *lines; lines++)
		if (!strstr(text, *lines))
			fail_msg("\"%s\" is not in:\n%s", *lines, text);
	free(text);
}

#define EXPECT(text, ...) expect(text, (const char *const[]){ __VA_ARGS__, NULL })

static void test_totals(void **state)
{
	(void)state;
	EXPECT(print(early, NULL, 0), "puppy: process 77, up 10 s, boot 1\n", "\nnet0 on tap7\n",
	       " packets bytes batch kicks/1000 intr/1000 dropped waits\n",
	       "\n rx 1000 64000 10.0 10.0 50.0 3 4\n", "\n tx 0 0 0.0 0.0 0.0 0 0\n",
	       "\ncpu0 32 exits: io_out 30, signal 2\n", "\n devices: serial 30\n",
	       "\n in KVM: exits 5000\n");
}

static void test_rates(void **state)
{
	(void)state;
	EXPECT(print(late, early, 4), " packets/s bytes/s batch ",
	       "\n rx 1000 100000 40.0 5.0 50.0 2 0\n", "\n tx 2 120 1.0 1000.0 1000.0 0 0\n",
	       "\ncpu0 10 exits/s: io_out 10\n", "\n devices: serial 8, pci 2\n");
	/* The first report of --watch: since the start. */
	EXPECT(print(early, NULL, 10), "\n rx 100 6400 10.0 10.0 50.0 3 4\n",
	       "\ncpu0 3 exits/s: io_out 3, signal 0\n");
}

/* Counters that went back have begun at zero again. */
static void test_started_anew(void **state)
{
	(void)state;
	EXPECT(print(early, late, 2), "\n rx 500 32000 10.0 10.0 50.0 3 0\n",
	       "devices: serial 15\n");
	EXPECT(print(late, late, 2), "\n rx 0 0 0.0 0.0 0.0 0 0\n", "0 exits/s: none\n",
	       "devices: none\n");
}

#define HISTOGRAM(name, buckets) "\"" name "\": {\"buckets\": [" buckets "]}"

static const char few[] = "{\"boots\": 1, \"nics\": [{\"tx\": {"
	HISTOGRAM("batch_sizes", "[1, 10], [32, 2]") ","
	HISTOGRAM("kick_to_tap", "[1024, 100]") ","
	"\"ring_full\": 1, \"timers_useful\": 2, \"timers_empty\": 3, \"polls_hit\": 4,"
	"\"polls_missed\": 5, \"drops\": {\"gone\": 7, \"too_short\": 0}}}]}";

static const char more[] = "{\"boots\": 1, \"nics\": [{\"tx\": {"
	HISTOGRAM("batch_sizes", "[1, 10], [32, 2], [64, 90]") ","
	HISTOGRAM("kick_to_tap", "[1024, 100]") ","
	"\"ring_full\": 10, \"timers_useful\": 20, \"timers_empty\": 30, \"polls_hit\": 40,"
	"\"polls_missed\": 50, \"drops\": {\"gone\": 7, \"too_short\": 2}}}]}";

/* Of the time in between alone, as far as buckets tell. */
static void test_histograms(void **state)
{
	(void)state;
	EXPECT(print(few, NULL, 0), "\n rx - - - - - - 0 0 (0) 0 (0)\n",
	       "\n tx 1.0 61.1 1.5 2.0 - - 1 5 (3) 9 (5)\n", "\n tx dropped: gone 7\n");
	EXPECT(print(more, few, 1), "\n tx 95.5 126.4 - - - - 9 45 (27) 81 (45)\n",
	       "\n tx dropped: too_short 2\n");
}

static void test_pairs(void **state)
{
	char *text = print(early, NULL, 0);

	(void)state;
	assert_null(strstr(text, "pair"));
	free(text);
	EXPECT(print(two_pairs, NULL, 0), "\n rx 3 ", "\n pair 0 rx 1 ", "\n pair 0 tx 0 ",
	       "\n pair 1 rx 2 ");
}

/* Whatever another version or another program sends. */
static void test_odd_objects(void **state)
{
	static const char *const objects[] = {
		"{}",
		"{\"machine\": 3, \"nics\": {}, \"cpus\": 1}",
		"{\"nics\": [[], null, 3, {\"pairs\": [1, 2]}], \"cpus\": [[], {\"exits\": []}]}",
		"{\"cpus\": [{\"exits\": {\"a\": {}, \"b\": \"c\"}, \"kvm\": []}]}",
		"{\"nics\": [{\"rx\": {\"drops\": [1],"
		"             \"batch_sizes\": {\"buckets\": [1, [], [-1, -1]]},"
		"             \"kick_to_tap\": {\"buckets\": {}}}}]}",
	};

	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(objects); i++)
		for (unsigned k = 0; k < ARRAY_SIZE(objects); k++)
			free(print(objects[i], objects[k], i));
}

static void test_vhost(void **state)
{
	static const char vhost[] =
		"{\"nics\": [{\"name\": \"net0\", \"backend\": \"tap7\", \"vhost\": true,"
		" \"rx\": null, \"tx\": null, \"pairs\": null}]}";
	char *said = print(vhost, NULL, 0);

	(void)state;
	assert_null(strstr(said, "packets"));
	EXPECT(said, "\nnet0 on tap7\n its frames are the kernel's vhost-net's,");
}

static void test_what_a_terminal_would_obey(void **state)
{
	static const char bad[] =
		"{\"machine\": \"a\\u001b[2Jb\", \"cpus\": [{\"exits\": {\"x\\u001b[2J\": 1}}],"
		" \"nics\": [{\"name\": \"n\\nm\", \"backend\": \"\\u007f\","
		"             \"rx\": {\"drops\": {\"\\u0007\": 3}}}]}";
	char *said = print(bad, NULL, 0);

	(void)state;
	for (const char *c = said; *c; c++)
		assert_true(*c == '\n' || (*c >= ' ' && *c < 0x7f));
	EXPECT(said, "?: process 0", "\n? on ?\n", " rx dropped: ? 3\n", "1 exits: ? 1\n");
}

static void test_rows(void **state)
{
	json_t *object = json_loads(late, 0, NULL), *bare = json_object();
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	stat_print_heading(out);
	stat_print_row(out, "puppy", 77, object);
	stat_print_row(out, "a-name-that-has-thirty-two-chars", 4194304, NULL);
	stat_print_row(out, "bare", 1, bare);
	fclose(out);
	json_decref(object);
	json_decref(bare);
	EXPECT(text, "NAME PID UP CPUS NICS\n", "\npuppy 77 14 s 1 tap7\n",
	       "\na-name-that-has-thirty-two-chars 4194304 does not answer\n",
	       "\nbare 1 0 s 0 -\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_totals),
		cmocka_unit_test(test_rates),
		cmocka_unit_test(test_started_anew),
		cmocka_unit_test(test_histograms),
		cmocka_unit_test(test_pairs),
		cmocka_unit_test(test_odd_objects),
		cmocka_unit_test(test_what_a_terminal_would_obey),
		cmocka_unit_test(test_vhost),
		cmocka_unit_test(test_rows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
