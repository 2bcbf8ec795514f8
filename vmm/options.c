/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * argv is read by one loop over the command's table; see options_table.c. The first thing wrong
 * ends it: one line, and nothing was done.
 */
#include "vmm/options.h"

#include <errno.h>
#include <string.h>

#include "vmm/log.h"
#include "vmm/options_table.h"
#include "vmm/options_value.h"
#include "vmm/util.h"

/* What was probably meant by an unknown option, or NULL. */
static const char *nearest_option(const struct command_info *info, const char *given)
{
	struct nearest nearest = { .given = given, .least = 4 };
	unsigned i;

	for (i = 0; info && i < info->count; i++)
		nearest_offer(&nearest, info->options[i].name);
	for (i = 0; i < option_common_count; i++)
		nearest_offer(&nearest, option_common[i].name);
	return nearest.best;
}

static const char *nearest_command(const char *given)
{
	struct nearest nearest = { .given = given, .least = 3 };
	unsigned i;

	for (i = 0; i < option_command_count; i++)
		nearest_offer(&nearest, option_commands[i].name);
	return nearest.best;
}

/* True for "--name" and for "--name=anything". */
static bool names_option(const char *arg, const char *name)
{
	size_t len = strlen(name);

	return !strncmp(arg, name, len) && (arg[len] == '\0' || arg[len] == '=');
}

static const struct option *find_option(const struct command_info *info, const char *arg)
{
	unsigned i;

	for (i = 0; i < info->count; i++) {
		if (names_option(arg, info->options[i].name))
			return &info->options[i];
	}
	return NULL;
}

/* An option where a value should stand was hardly meant as the value. */
static bool is_option(const struct command_info *info, const char *arg)
{
	unsigned i;

	for (i = 0; i < option_common_count; i++) {
		if (!strcmp(arg, option_common[i].name))
			return true;
	}
	return find_option(info, arg);
}

/* --help and --version, after which the rest of the line no longer matters. */
static bool take_common(struct options *options, const char *topic, const char *arg)
{
	if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
		options->command = COMMAND_HELP;
		options->help_topic = topic;
		return true;
	}
	if (!strcmp(arg, "--version")) {
		options->command = COMMAND_VERSION;
		return true;
	}
	return false;
}

static int refuse_unknown(const struct command_info *info, const char *arg)
{
	const char *command = info ? info->name : "", *space = info ? " " : "";
	char quoted[QUOTED_BYTES], name[64];
	const char *nearest;

	if (arg[0] != '-') {
		log_error("%s: a stray argument; \"whelp%s%s --help\" shows what is taken",
			  value_quote(quoted, arg), space, command);
		return -EINVAL;
	}
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(arg, "="), arg);
	nearest = nearest_option(info, name);
	if (nearest)
		log_error("%s: unknown option; did you mean %s?", value_quote(quoted, arg),
			  nearest);
	else
		log_error("%s: unknown option; \"whelp%s%s --help\" lists them",
			  value_quote(quoted, arg), space, command);
	return -EINVAL;
}

/* The value of `option`, given in argv[*index], which goes on to the last argument used. */
static int take_value(const struct command_info *info, const struct option *option, int argc,
		      char **argv, int *index, const char **value)
{
	const char *equals = argv[*index] + strlen(option->name);
	char quoted[QUOTED_BYTES];
	const char *next;

	*value = NULL;
	if (!option->argument) {
		if (!*equals)
			return 0;
		log_error("%s %s: takes no value", option->name, value_quote(quoted, equals + 1));
		return -EINVAL;
	}
	if (*equals) {
		*value = equals + 1;
	} else if (option->argument[0] == '[') {
		return 0;
	} else {
		next = *index + 1 < argc ? argv[*index + 1] : NULL;
		if (!next || is_option(info, next)) {
			log_error("%s: needs a value: %s %s, or %s=%s", option->name, option->name,
				  option->argument, option->name, option->argument);
			return -EINVAL;
		}
		*value = next;
		++*index;
	}
	if (!**value && !option->may_be_empty) {
		log_error("%s \"\": must not be empty; it takes %s", option->name,
			  option->argument);
		return -EINVAL;
	}
	return 0;
}

/* The command's own argument, once. */
static int take_operand(struct options *options, const struct command_info *info, const char *arg,
			bool *taken)
{
	char quoted[QUOTED_BYTES];
	struct complaint why;

	if (!info->set_operand || arg[0] == '-' || *taken)
		return refuse_unknown(info, arg);
	*taken = true;
	if (!info->set_operand(options, arg, &why))
		return 0;
	log_error("%s %s: %s", info->name, value_quote(quoted, arg), why.text);
	return -EINVAL;
}

/* Reads all options of a command; stops early when one turned it into another (--help). */
static int parse_options(struct options *options, const struct command_info *info, int argc,
			 char **argv)
{
	char quoted[QUOTED_BYTES];
	struct complaint why;
	uint32_t seen = 0;
	bool operand = false;
	int i;

	for (i = 2; i < argc; i++) {
		const struct option *option = find_option(info, argv[i]);
		const char *value;
		uint32_t bit;

		if (take_common(options, info->name, argv[i]))
			return 0;
		if (!option) {
			if (take_operand(options, info, argv[i], &operand))
				return -EINVAL;
			continue;
		}
		if (take_value(info, option, argc, argv, &i, &value))
			return -EINVAL;
		bit = UINT32_C(1) << (option - info->options);
		if (seen & bit && !option->repeatable) {
			log_error("%s%s%s: given twice; it may stand only once", option->name,
				  value ? " " : "", value ? value_quote(quoted, value) : "");
			return -EINVAL;
		}
		seen |= bit;
		if (option->set(options, value, &why)) {
			log_error("%s %s: %s", option->name, value_quote(quoted, value), why.text);
			return -EINVAL;
		}
		if (options->command != info->command)
			return 0;
	}
	return 0;
}

static int parse_help(struct options *options, const struct command_info *info, int argc,
		      char **argv)
{
	static const char *const topics[] = { "run", "stat", "doctor", "net" };
	char quoted[QUOTED_BYTES];
	size_t i;

	if (argc > 3)
		return refuse_unknown(info, argv[3]);
	if (argc == 2 || take_common(options, NULL, argv[2]))
		return 0;
	if (argv[2][0] == '-')
		return refuse_unknown(info, argv[2]);
	for (i = 0; i < ARRAY_SIZE(topics); i++) {
		if (!strcmp(argv[2], topics[i])) {
			options->help_topic = topics[i];
			return 0;
		}
	}
	log_error("help %s: no such topic; there are run, stat, doctor and net",
		  value_quote(quoted, argv[2]));
	return -EINVAL;
}

static const struct command_info *find_command(const char *name)
{
	unsigned i;

	for (i = 0; i < option_command_count; i++) {
		if (!strcmp(option_commands[i].name, name))
			return &option_commands[i];
	}
	return NULL;
}

static int refuse_command(const char *name)
{
	const char *nearest = nearest_command(name);
	char quoted[QUOTED_BYTES];

	if (nearest)
		log_error("%s: unknown command; did you mean %s?", value_quote(quoted, name),
			  nearest);
	else
		log_error("%s: unknown command; there are run, stat, doctor and help",
			  value_quote(quoted, name));
	return -EINVAL;
}

int options_parse(struct options *options, int argc, char **argv)
{
	const struct command_info *info;

	memset(options, 0, sizeof(*options));
	options->run.cmdline = "console=ttyS0";
	options->run.cpus = 1;
	options->run.memory = MIB(256);

	if (argc < 2) {
		log_error("no command; \"whelp help\" lists them");
		return -EINVAL;
	}
	if (take_common(options, NULL, argv[1]))
		return argc > 2 ? refuse_unknown(NULL, argv[2]) : 0;
	if (argv[1][0] == '-')
		return refuse_unknown(NULL, argv[1]);
	info = find_command(argv[1]);
	if (!info)
		return refuse_command(argv[1]);
	options->command = info->command;
	if (info->command == COMMAND_HELP)
		return parse_help(options, info, argc, argv);
	if (parse_options(options, info, argc, argv))
		return -EINVAL;
	if (options->command == COMMAND_STAT && options->stat.watch && !options->stat.name) {
		log_error("--watch: which machine? \"whelp stat\" lists those that run");
		return -EINVAL;
	}
	if (options->command == COMMAND_RUN && !options->run.kernel) {
		log_error("--kernel: missing; whelp run needs --kernel FILE");
		return -EINVAL;
	}
	return 0;
}
