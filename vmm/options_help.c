/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The help is printed from the tables that the parser reads; docs/options.md quotes it, and a test
 * holds the two together.
 */
#include <stdio.h>
#include <string.h>

#include "vmm/options_table.h"
#include "vmm/options_value.h"
#include "vmm/util.h"

/*
 * Writes "  name argument   first line", and further lines below the first; all below a long name.
 */
static void print_row(FILE *out, int width, const char *name, const char *argument,
		      const char *help)
{
	const char *line = help;
	char left[48];

	snprintf(left, sizeof(left), "%s%s%s", name, argument && argument[0] != '[' ? " " : "",
		 argument ? argument : "");
	if ((int)strlen(left) > width) {
		fprintf(out, "  %s\n", left);
		left[0] = '\0';
	}
	for (;;) {
		int len = (int)strcspn(line, "\n");

		fprintf(out, "  %-*s  %.*s\n", width, left, len, line);
		if (!line[len])
			break;
		line += len + 1;
		left[0] = '\0';
	}
}

static void print_options(FILE *out, const struct option *options, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		print_row(out, 19, options[i].name, options[i].argument, options[i].help);
}

static void print_options_of(FILE *out, enum command command)
{
	unsigned i;

	fputs("\nOptions, as --name VALUE or --name=VALUE:\n", out);
	for (i = 0; i < option_command_count; i++) {
		if (option_commands[i].command == command)
			print_options(out, option_commands[i].options, option_commands[i].count);
	}
	print_options(out, option_common, option_common_count);
}

struct status_help {
	enum exit_status status;
	const char *name; /* where a plain number would not do */
	const char *help;
};

static const struct status_help run_statuses[] = {
	{ EXIT_POWERED_OFF, NULL, "the guest powered off" },
	{ EXIT_SETUP, NULL,
	  "the machine could not be set up: KVM, a file, a tap or memory is missing or\n"
	  "refused; one line says which, and what to do" },
	{ EXIT_USAGE, NULL, "the command line is wrong" },
	{ EXIT_REBOOT, NULL, "the guest rebooted, and --no-reboot was given" },
	{ EXIT_PANIC, NULL, "the guest's kernel panicked" },
	{ EXIT_TRIPLE_FAULT, NULL, "a virtual CPU shut down by a triple fault" },
	{ EXIT_INTERNAL_ERROR, NULL, "KVM could not go on" },
	{ EXIT_QUIT, NULL, "you quit, by Ctrl-A x" },
	{ EXIT_SIGNAL, "128+N", "signal N ended whelp: 129 SIGHUP, 130 SIGINT, 143 SIGTERM" },
};

static const struct status_help stat_statuses[] = {
	{ EXIT_POWERED_OFF, NULL, "it was printed; with --watch: the machine ended, or Ctrl-C" },
	{ EXIT_SETUP, NULL,
	  "there is no such machine, or it does not answer; one line says which" },
	{ EXIT_USAGE, NULL, "the command line is wrong" },
};

static const struct status_help doctor_statuses[] = {
	{ EXIT_POWERED_OFF, NULL, "guests run natively, and nothing needed is missing" },
	{ EXIT_SETUP, NULL,
	  "a row says \"fail\"; a KVM that only emulates counts as failing, as a stock\n"
	  "kernel takes many minutes on it, though tiny guests run" },
	{ EXIT_USAGE, NULL, "the command line is wrong" },
};

static void print_statuses(FILE *out, const struct status_help *statuses, unsigned count)
{
	char number[16];
	unsigned i;

	fputs("\nExit status:\n", out);
	for (i = 0; i < count; i++) {
		snprintf(number, sizeof(number), "%d", (int)statuses[i].status);
		print_row(out, 5, statuses[i].name ? statuses[i].name : number, NULL,
			  statuses[i].help);
	}
}

static void help_overview(FILE *out)
{
	fputs("Usage: whelp COMMAND [OPTION...]\n"
	      "\n"
	      "A small virtual machine monitor for KVM.\n"
	      "\n"
	      "Commands:\n"
	      "  run           boot a Linux kernel in a virtual machine\n"
	      "  stat          show what running machines have done: packets, interrupts, exits\n"
	      "  doctor        say whether this machine can run guests, and what it lacks\n"
	      "  help [TOPIC]  print help on run, stat, doctor or net\n"
	      "\n"
	      "whelp --version prints the version; whelp COMMAND --help is help, too.\n",
	      out);
}

static void help_run(FILE *out)
{
	fputs("Usage: whelp run --kernel FILE [OPTION...]\n"
	      "\n"
	      "Boots a Linux kernel in a virtual machine. Standard input and output are its first\n"
	      "serial port, ttyS0; on a terminal, Ctrl-A x quits, and Ctrl-A Ctrl-A sends "
	      "Ctrl-A.\n",
	      out);
	print_options_of(out, COMMAND_RUN);
	print_statuses(out, run_statuses, ARRAY_SIZE(run_statuses));
}

static void help_stat(FILE *out)
{
	fputs("Usage: whelp stat [NAME] [OPTION...]\n"
	      "\n"
	      "Lists your running machines; with a NAME, shows what that one counts: of its NICs'\n"
	      "queues packets, kicks and interrupts, and of its CPUs why they left the guest.\n",
	      out);
	print_options_of(out, COMMAND_STAT);
	print_statuses(out, stat_statuses, ARRAY_SIZE(stat_statuses));
}

static void help_doctor(FILE *out)
{
	fputs("Usage: whelp doctor [OPTION...]\n"
	      "\n"
	      "Says in a table whether this machine can run guests: KVM and whether it runs guest "
	      "code\n"
	      "natively or only emulates it, tun, limits; and what to do about what is missing.\n",
	      out);
	print_options_of(out, COMMAND_DOCTOR);
	print_statuses(out, doctor_statuses, ARRAY_SIZE(doctor_statuses));
}

static void print_features(FILE *out, bool off)
{
	unsigned i;

	for (i = 0; i < net_feature_count; i++) {
		if ((net_features[i].use == NET_FEATURE_OFF) == off)
			print_row(out, 25, net_features[i].name, NULL, net_features[i].help);
	}
}

static void help_net(FILE *out)
{
	unsigned i;

	fputs("Usage: whelp run --net tap=NAME[,KEY=VALUE...][,+FEATURE...][,-FEATURE...]\n"
	      "       whelp run --net fd=N[:N...][,KEY=VALUE...][,+FEATURE...][,-FEATURE...]\n"
	      "\n"
	      "Gives the guest a virtio-net NIC; each --net gives one more.\n"
	      "\n"
	      "Keys:\n",
	      out);
	for (i = 0; i < net_config_keys.count; i++) {
		const struct option_key *key = &net_config_keys.keys[i];
		char left[32];

		snprintf(left, sizeof(left), "%s=%s", key->key, key->argument);
		print_row(out, 16, left, NULL, key->help);
	}
	print_row(out, 16, "+FEATURE", NULL,
		  "offer the guest this feature, or end if the tap cannot do it");
	print_row(out, 16, "-FEATURE", NULL, "do not offer it, nor what needs it");
	fputs("\n"
	      "Features that are on by default, where the tap can do them:\n",
	      out);
	print_features(out, false);
	fputs("\n"
	      "Features that are off by default:\n",
	      out);
	print_features(out, true);
}

void options_help(FILE *out, const char *topic)
{
	static const struct {
		const char *topic;
		void (*print)(FILE *out);
	} topics[] = { { "run", help_run },
		    { "stat", help_stat },
		    { "doctor", help_doctor },
		    { "net", help_net } };
	size_t i;

	for (i = 0; topic && i < ARRAY_SIZE(topics); i++) {
		if (!strcmp(topic, topics[i].topic)) {
			topics[i].print(out);
			return;
		}
	}
	help_overview(out);
}
