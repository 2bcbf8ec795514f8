/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A row holds an option's name, its help and the function that puts its value into the config, so
 * that the parser and the help cannot differ. A setter complains about a value without naming it;
 * the parser prints option, value and complaint.
 */
#include "vmm/options_table.h"

#include <string.h>

#include "vmm/util.h"
#include "vmm/x86/layout.h"

static int set_path(const char **field, const char *value)
{
	*field = value;
	return 0;
}

static int set_kernel(struct options *options, const char *value, struct complaint *why)
{
	(void)why;
	return set_path(&options->run.kernel, value);
}

static int set_initrd(struct options *options, const char *value, struct complaint *why)
{
	(void)why;
	return set_path(&options->run.initrd, value);
}

static int set_cmdline(struct options *options, const char *value, struct complaint *why)
{
	(void)why;
	return set_path(&options->run.cmdline, value);
}

static int set_cpus(struct options *options, const char *value, struct complaint *why)
{
	uint64_t cpus;
	int rc;

	rc = value_number(value, 1, OPTIONS_MAX_CPUS, &cpus, why);
	if (!rc)
		options->run.cpus = (unsigned)cpus;
	return rc;
}

static int set_memory(struct options *options, const char *value, struct complaint *why)
{
	return value_size(value, LAYOUT_MIN_MEMORY, OPTIONS_MAX_MEMORY, &options->run.memory, why);
}

static bool share_fd(const struct net_config *a, const struct net_config *b, int *fd)
{
	unsigned i, k;

	for (i = 0; i < a->fd_count; i++)
		for (k = 0; k < b->fd_count; k++)
			if (a->fds[i] == b->fds[k]) {
				*fd = a->fds[i];
				return true;
			}
	return false;
}

/* That no earlier NIC has what each needs of its own. */
static int check_others(const struct run_config *run, const struct net_config *net,
			struct complaint *why)
{
	static const uint8_t unset[6];
	unsigned i;
	int fd;

	for (i = 0; i < run->net_count; i++) {
		const struct net_config *other = &run->nets[i];

		if (*net->tap && !strcmp(other->tap, net->tap))
			return complain(why,
					"an earlier --net has this tap; each NIC needs its own");
		if (share_fd(other, net, &fd))
			return complain(why,
					"an earlier --net has fd %d; each NIC needs its own", fd);
		if (memcmp(net->mac, unset, 6) && !memcmp(other->mac, net->mac, 6))
			return complain(why,
					"an earlier --net has this mac; each NIC needs its own");
	}
	return 0;
}

static int set_net(struct options *options, const char *value, struct complaint *why)
{
	struct run_config *run = &options->run;
	struct net_config *net = &run->nets[run->net_count];
	int rc;

	if (!strcmp(value, "help")) {
		options->command = COMMAND_HELP;
		options->help_topic = "net";
		return 0;
	}
	if (run->net_count == OPTIONS_MAX_NETS)
		return complain(why, "is one too many: at most %d NICs", OPTIONS_MAX_NETS);
	rc = net_config_parse(net, value, why);
	if (!rc)
		rc = check_others(run, net, why);
	if (!rc)
		run->net_count++;
	return rc;
}

static int set_affinity(struct options *options, const char *value, struct complaint *why)
{
	return value_cpus(value, &options->run.affinity, why);
}

static int set_name(struct options *options, const char *value, struct complaint *why)
{
	options->run.name = value;
	return value_name(value, why);
}

static int set_serial(struct options *options, const char *value, struct complaint *why)
{
	const size_t longest = 107; /* sun_path of struct sockaddr_un, less its NUL */

	if (strlen(value) > longest)
		return complain(why, "must be a path of at most %zu bytes, as a socket's", longest);
	return set_path(&options->run.serial, value);
}

static int set_stats(struct options *options, const char *value, struct complaint *why)
{
	(void)why;
	options->run.stats = value;
	return 0;
}

static int set_no_reboot(struct options *options, const char *value, struct complaint *why)
{
	(void)value;
	(void)why;
	options->run.no_reboot = true;
	return 0;
}

static int set_json(struct options *options, const char *value, struct complaint *why)
{
	(void)value;
	(void)why;
	options->json = true;
	return 0;
}

static int set_stat_name(struct options *options, const char *value, struct complaint *why)
{
	options->stat.name = value;
	return value_name(value, why);
}

static int set_stat_json(struct options *options, const char *value, struct complaint *why)
{
	(void)value;
	(void)why;
	options->stat.json = true;
	return 0;
}

static int set_watch(struct options *options, const char *value, struct complaint *why)
{
	uint64_t seconds = 1;
	int rc = value ? value_number(value, 1, OPTIONS_MAX_WATCH, &seconds, why) : 0;

	options->stat.watch = (unsigned)seconds;
	return rc;
}

static const struct option run_options[] = {
	{ "--kernel", "FILE", "the kernel: a bzImage or an uncompressed ELF vmlinux (required)",
	  set_kernel, false, false },
	{ "--initrd", "FILE", "its initial RAM disk (default: none)", set_initrd, false, false },
	{ "--cmdline", "TEXT", "its command line (default: \"console=ttyS0\")", set_cmdline, false,
	  true },
	{ "--cpus", "N", "virtual CPUs, 1 to 254 (default: 1)", set_cpus, false, false },
	{ "--affinity", "LIST",
	  "host CPUs for the virtual CPUs' threads, in turn, such as 0:2-3 (default:\n"
	  "any)",
	  set_affinity, false, false },
	{ "--memory", "SIZE",
	  "the guest's memory, 64M to 512G in steps of 4K; units are K, M, G (or\n"
	  "KiB, MiB, GiB), a number without one is MiB (default: 256M)",
	  set_memory, false, false },
	{ "--net", "KEY=VALUE,...",
	  "a virtio-net NIC, such as tap=tap0,queues=4; once for each NIC, 16 at\n"
	  "most; \"--net help\" lists keys and features (default: none)",
	  set_net, true, false },
	{ "--name", "NAME",
	  "the machine's name, 1 to 32 of A-Z a-z 0-9 . _ - (default: whelp-PID), in\n"
	  "messages, for ps and pgrep, and for whelp stat; not one that is running",
	  set_name, false, false },
	{ "--serial", "PATH",
	  "a second serial port, ttyS1, on a new unix socket at PATH (default: none)", set_serial,
	  false, false },
	{ "--stats", "FILE",
	  "write its counters to FILE, as JSON, at the end and at each SIGUSR2\n"
	  "(default: none)",
	  set_stats, false, false },
	{ "--no-reboot", NULL, "exit when the guest reboots", set_no_reboot, false, false },
};

static const struct option stat_options[] = {
	{ "--json", NULL, "print JSON instead of the tables; with --watch, an object a line",
	  set_stat_json, false, false },
	{ "--watch", "[=SECONDS]",
	  "repeat it each second, or as often as is said, 1 to 3600, with rates, until\n"
	  "the machine ends or you type Ctrl-C",
	  set_watch, false, false },
};

static const struct option doctor_options[] = {
	{ "--json", NULL, "print one JSON object instead of the table", set_json, false, false },
};

const struct option option_common[] = {
	{ "--help", NULL, "print this help (also -h)", NULL, false, false },
	{ "--version", NULL, "print the version", NULL, false, false },
};

const unsigned option_common_count = ARRAY_SIZE(option_common);

_Static_assert(ARRAY_SIZE(run_options) <= MAX_OPTIONS, "a bit for each option");

const struct command_info option_commands[] = {
	{ COMMAND_RUN, "run", run_options, ARRAY_SIZE(run_options), NULL },
	{ COMMAND_STAT, "stat", stat_options, ARRAY_SIZE(stat_options), set_stat_name },
	{ COMMAND_DOCTOR, "doctor", doctor_options, ARRAY_SIZE(doctor_options), NULL },
	{ COMMAND_HELP, "help", NULL, 0, NULL },
};

const unsigned option_command_count = ARRAY_SIZE(option_commands);
