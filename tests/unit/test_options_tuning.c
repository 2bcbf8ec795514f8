/* SPDX-License-Identifier: GPL-2.0-or-later */
/* --net's keys that say how frames are moved, and the lists of host CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "tests/unit/liboptions.h"
#include "vmm/util.h"

#define TUNING(value) (GOOD("run", "--kernel=k", "--net", value).run.nets[0].tuning)

static void test_defaults(void **state)
{
	struct net_tuning t = TUNING("tap=t");

	(void)state;
	assert_int_equal(t.mitigation, MITIGATE_ADAPTIVE);
	assert_int_equal(t.latency_usecs, 200);
	assert_int_equal(t.poll, NET_POLL_AUTO);
	assert_int_equal(t.budget_packets, 0);
	assert_int_equal(t.budget_bytes, 0);
	assert_int_equal(t.workers, NET_WORKERS_PAIR);
	assert_int_equal(t.lock, NET_LOCK_NONE);
	assert_int_equal(t.intr, NET_INTR_BATCH);
	assert_int_equal(t.sched, NET_SCHED_AUTO);
	assert_int_equal(t.io, NET_IO_AUTO);
	assert_false(t.rx_copy);
	assert_int_equal(t.cpus.count, 0);
	assert_int_equal(GOOD("run", "--kernel=k").run.affinity.count, 0);
}

static void test_mitigation(void **state)
{
	struct net_tuning t;

	(void)state;
	assert_int_equal(TUNING("tap=t,mitigation=off").mitigation, MITIGATE_OFF);
	assert_int_equal(TUNING("tap=t,mitigation=lguest").mitigation, MITIGATE_LGUEST);
	assert_int_equal(TUNING("tap=t,mitigation=adaptive").mitigation, MITIGATE_ADAPTIVE);
	t = TUNING("mitigation=fixed:150,tap=t");
	assert_int_equal(t.mitigation, MITIGATE_FIXED);
	assert_int_equal(t.period_usecs, 150);
	assert_int_equal(t.latency_usecs, 200);
	/* A time beyond the usual bound moves that, but not one that was given. */
	t = TUNING("tap=t,mitigation=window:1000000");
	assert_int_equal(t.mitigation, MITIGATE_WINDOW);
	assert_int_equal(t.period_usecs, 1000000);
	assert_int_equal(t.latency_usecs, 1000000);
	t = TUNING("tap=t,latency=150,mitigation=fixed:150");
	assert_int_equal(t.latency_usecs, 150);
	t = TUNING("tap=t,mitigation=fixed:1,latency=1000000");
	assert_int_equal(t.period_usecs, 1);
	assert_int_equal(t.latency_usecs, 1000000);
	assert_int_equal(TUNING("tap=t,latency=1,mitigation=off").latency_usecs, 1);
}

static void test_poll_and_budget(void **state)
{
	struct net_tuning t;

	(void)state;
	assert_int_equal(TUNING("tap=t,poll=off").poll, NET_POLL_OFF);
	assert_int_equal(TUNING("tap=t,poll=auto").poll, NET_POLL_AUTO);
	t = TUNING("tap=t,poll=1");
	assert_int_equal(t.poll, NET_POLL_FIXED);
	assert_int_equal(t.poll_usecs, 1);
	assert_int_equal(TUNING("tap=t,poll=1000000").poll_usecs, 1000000);
	t = TUNING("tap=t,budget=1");
	assert_int_equal(t.budget_packets, 1);
	assert_int_equal(t.budget_bytes, 0);
	t = TUNING("tap=t,budget=65536:4294967295");
	assert_int_equal(t.budget_packets, 65536);
	assert_int_equal(t.budget_bytes, UINT32_MAX);
	assert_int_equal(TUNING("tap=t,budget=64:1").budget_bytes, 1);
}

static void test_words(void **state)
{
	(void)state;
	assert_int_equal(TUNING("tap=t,workers=pair").workers, NET_WORKERS_PAIR);
	assert_int_equal(TUNING("tap=t,workers=split").workers, NET_WORKERS_SPLIT);
	assert_int_equal(TUNING("tap=t,workers=one").workers, NET_WORKERS_ONE);
	assert_int_equal(TUNING("tap=t,lock=none").lock, NET_LOCK_NONE);
	assert_int_equal(TUNING("tap=t,lock=hold").lock, NET_LOCK_HOLD);
	assert_int_equal(TUNING("tap=t,lock=drop").lock, NET_LOCK_DROP);
	assert_int_equal(TUNING("tap=t,intr=batch").intr, NET_INTR_BATCH);
	assert_int_equal(TUNING("tap=t,intr=packet").intr, NET_INTR_PACKET);
	assert_int_equal(TUNING("tap=t,intr=empty").intr, NET_INTR_EMPTY);
	assert_int_equal(TUNING("tap=t,sched=normal").sched, NET_SCHED_NORMAL);
	assert_int_equal(TUNING("tap=t,sched=batch").sched, NET_SCHED_BATCH);
	assert_int_equal(TUNING("tap=t,sched=auto").sched, NET_SCHED_AUTO);
	assert_int_equal(TUNING("tap=t,io=syscall").io, NET_IO_SYSCALL);
	assert_int_equal(TUNING("tap=t,io=uring").io, NET_IO_URING);
	assert_int_equal(TUNING("tap=t,io=auto").io, NET_IO_AUTO);
	assert_false(TUNING("tap=t,rx=zerocopy").rx_copy);
	assert_true(TUNING("tap=t,rx=copy").rx_copy);
}

/* Each NIC has its own. */
static void test_several_nics(void **state)
{
	struct options o = GOOD("run", "--kernel=k", "--net=tap=a,workers=one,poll=off",
				"--net=tap=b,mitigation=off", "--net=tap=c,affinity=3");

	(void)state;
	assert_int_equal(o.run.nets[0].tuning.workers, NET_WORKERS_ONE);
	assert_int_equal(o.run.nets[0].tuning.mitigation, MITIGATE_ADAPTIVE);
	assert_int_equal(o.run.nets[1].tuning.workers, NET_WORKERS_PAIR);
	assert_int_equal(o.run.nets[1].tuning.poll, NET_POLL_AUTO);
	assert_int_equal(o.run.nets[2].tuning.cpus.count, 1);
	assert_int_equal(o.run.nets[0].tuning.cpus.count, 0);
}

static const struct {
	const char *text;
	unsigned count;
	uint16_t cpus[6];
} lists[] = {
	{ "0", 1, { 0 } },
	{ "65535", 1, { 65535 } },
	{ "3:1", 2, { 3, 1 } },
	{ "0-3", 4, { 0, 1, 2, 3 } },
	{ "7-7", 1, { 7 } },
	{ "0:2-3:0:9", 5, { 0, 2, 3, 0, 9 } },
	{ "007", 1, { 7 } },
	{ "65534-65535", 2, { 65534, 65535 } },
};

static void test_cpu_lists(void **state)
{
	(void)state;
	for (unsigned i = 0; i < ARRAY_SIZE(lists); i++) {
		char net[64];
		struct cpu_list cpus = GOOD("run", "--kernel=k", "--affinity", lists[i].text)
					       .run.affinity, same;

		assert_int_equal(cpus.count, lists[i].count);
		assert_memory_equal(cpus.cpus, lists[i].cpus, lists[i].count * sizeof(uint16_t));
		snprintf(net, sizeof(net), "tap=t,affinity=%s", lists[i].text);
		same = TUNING(net).cpus;
		assert_memory_equal(&same, &cpus, sizeof(same));
	}
}

static void test_cpus_in_turn(void **state)
{
	const struct cpu_list none = { .count = 0 };
	struct cpu_list list = TUNING("tap=t,affinity=5:2-3").cpus;

	(void)state;
	assert_int_equal(cpu_list_choose(&none, 0), -1);
	assert_int_equal(cpu_list_choose(&none, 7), -1);
	assert_int_equal(cpu_list_choose(&list, 0), 5);
	assert_int_equal(cpu_list_choose(&list, 2), 3);
	assert_int_equal(cpu_list_choose(&list, 3), 5);
	list = TUNING("tap=t,affinity=0-63").cpus;
	assert_int_equal(list.count, AFFINITY_MAX_CPUS);
	assert_int_equal(cpu_list_choose(&list, 63), 63);
}

/* One line that names option, key and value, and says what is allowed. */
#define BAD_KEY(name, item, ...) BAD_RUN(name, "--net", "tap=t," item, __VA_ARGS__)
#define BAD_CPUS(name, list, says)                                                                 \
	BAD_KEY("affinity= " name, "affinity=" list, "affinity", says),                            \
		BAD_RUN("--affinity " name, "--affinity", list, says)
#define NUMBERS "must be numbers of host CPUs, or ranges such as 0-3"

static const struct CMUnitTest tests[] = {
	BAD_KEY("mitigation of none", "mitigation=none", "mitigation must be off, fixed:USEC"),
	BAD_KEY("mitigation of other case", "mitigation=Off", "mitigation must be off"),
	BAD_KEY("mitigation without value", "mitigation=", "mitigation=POLICY"),
	BAD_KEY("mitigation with a prefix", "mitigation=fix:9", "mitigation must be off"),
	BAD_KEY("fixed without time", "mitigation=fixed", "fixed:USEC"),
	BAD_KEY("window without time", "mitigation=window", "window:USEC"),
	BAD_KEY("fixed with no number", "mitigation=fixed:", "behind fixed", "1 to 1000000"),
	BAD_KEY("fixed with 0", "mitigation=fixed:0", "behind fixed", "1 to 1000000"),
	BAD_KEY("window beyond the limit", "mitigation=window:1000001", "behind window",
		"1 to 1000000"),
	BAD_KEY("fixed with a unit", "mitigation=fixed:9us", "behind fixed"),
	BAD_KEY("fixed with a sign", "mitigation=fixed:-9", "behind fixed"),
	BAD_KEY("off with time", "mitigation=off:5", "mitigation must be off"),
	BAD_KEY("lguest with time", "mitigation=lguest:5", "mitigation must be off"),
	BAD_KEY("adaptive with time", "mitigation=adaptive:", "mitigation must be off"),
	BAD_KEY("mitigation twice", "mitigation=off,mitigation=off", "mitigation is given twice"),
	BAD_KEY("latency below fixed's time", "mitigation=fixed:150,latency=149",
		"waits for 150 us", "latency=149"),
	BAD_KEY("latency below window's time", "latency=1,mitigation=window:2", "waits for 2 us"),
	BAD_KEY("latency 0", "latency=0", "latency must be", "1 to 1000000"),
	BAD_KEY("latency beyond", "latency=1000001", "latency must be"),
	BAD_KEY("latency twice", "latency=5,latency=5", "latency is given twice"),
	BAD_KEY("poll 0", "poll=0", "poll must be off, auto, or a time"),
	BAD_KEY("poll beyond", "poll=1000001", "1 to 1000000"),
	BAD_KEY("poll on", "poll=on", "poll must be off, auto"),
	BAD_KEY("poll twice", "poll=off,poll=5", "poll is given twice"),
	BAD_KEY("budget 0", "budget=0", "budget must be", "1 to 65536"),
	BAD_KEY("budget beyond", "budget=65537", "1 to 65536"),
	BAD_KEY("budget far beyond", "budget=18446744073709551617", "1 to 65536"),
	BAD_KEY("budget without bytes", "budget=64:", "1 to 4294967295"),
	BAD_KEY("budget with 0 bytes", "budget=64:0", "1 to 4294967295"),
	BAD_KEY("budget with too many bytes", "budget=64:4294967296", "1 to 4294967295"),
	BAD_KEY("budget without packets", "budget=:5", "1 to 65536"),
	BAD_KEY("budget of three", "budget=1:2:3", "1 to 4294967295"),
	BAD_KEY("budget twice", "budget=1,budget=1", "budget is given twice"),
	BAD_KEY("workers", "workers=two", "workers must be pair, split or one"),
	BAD_KEY("workers of a prefix", "workers=pai", "workers must be pair, split or one"),
	BAD_KEY("workers twice", "workers=one,workers=one", "workers is given twice"),
	BAD_KEY("lock", "lock=yes", "lock must be none, hold or drop"),
	BAD_KEY("lock twice", "lock=hold,lock=drop", "lock is given twice"),
	BAD_KEY("intr", "intr=off", "intr must be batch, packet or empty"),
	BAD_KEY("sched", "sched=fifo", "sched must be normal, batch or auto"),
	BAD_KEY("sched twice", "sched=batch,sched=auto", "sched is given twice"),
	BAD_KEY("intr twice", "intr=batch,intr=empty", "intr is given twice"),
	BAD_KEY("io", "io=epoll", "io must be syscall, uring or auto"),
	BAD_KEY("io twice", "io=auto,io=auto", "io is given twice"),
	BAD_KEY("rx", "rx=zero", "rx must be zerocopy or copy"),
	BAD_KEY("rx twice", "rx=copy,rx=copy", "rx is given twice"),
	BAD_KEY("affinity twice", "affinity=1,affinity=1", "affinity is given twice"),
	BAD_CPUS("of a word", "all", NUMBERS),
	BAD_CPUS("with a comma's place empty", "0::1", NUMBERS),
	BAD_CPUS("with a colon at the end", "0:", NUMBERS),
	BAD_CPUS("of a negative number", "-1", NUMBERS),
	BAD_CPUS("without an end", "1-", NUMBERS),
	BAD_CPUS("of two dashes", "1--3", NUMBERS),
	BAD_CPUS("of three numbers", "1-2-3", NUMBERS),
	BAD_CPUS("with a blank", "1 ", NUMBERS),
	BAD_CPUS("of a number beyond", "65536", NUMBERS),
	BAD_CPUS("of a number far beyond", "123456", NUMBERS),
	BAD_CPUS("of many digits", "000000000000000000000000000000", NUMBERS),
	BAD_CPUS("of a range beyond", "0-65536", NUMBERS),
	BAD_CPUS("backwards", "3-2", "has a range that ends before it begins: 3-2"),
	BAD_CPUS("of too many", "0-64", "has more than 64 CPUs"),
	BAD_CPUS("of too many pieces", "0-32:0-31", "has more than 64 CPUs"),
	BAD_RUN("--affinity without value", "--affinity", "", "--affinity"),

	cmocka_unit_test(test_defaults),
	cmocka_unit_test(test_mitigation),
	cmocka_unit_test(test_poll_and_budget),
	cmocka_unit_test(test_words),
	cmocka_unit_test(test_several_nics),
	cmocka_unit_test(test_cpu_lists),
	cmocka_unit_test(test_cpus_in_turn),
};

int main(void)
{
	return cmocka_run_group_tests(tests, NULL, NULL);
}
