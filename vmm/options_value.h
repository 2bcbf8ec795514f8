/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values of options: text to number, size, name or address. Pure; each returns 0, or -EINVAL with a
 * complaint that says what is allowed, which the caller prints behind the option and its value.
 */
#ifndef WHELP_OPTIONS_VALUE_H
#define WHELP_OPTIONS_VALUE_H

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/log.h"
#include "vmm/options.h"

struct complaint {
	char text[256];
};

/* Sets the text, cut to fit, and returns -EINVAL. */
int complain(struct complaint *why, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Writes `text` in double quotes, fit for a one-line message: what is not printable becomes '?',
 * and what is too long is cut and ends in "...". Returns `quoted`.
 */
#define QUOTED_BYTES 100
const char *value_quote(char quoted[QUOTED_BYTES], const char *text);

/* A decimal number from `min` to `max`. */
int value_number(const char *text, uint64_t min, uint64_t max, uint64_t *number,
		 struct complaint *why);

/* Bytes: a decimal number of K, M, G (KiB, MiB, GiB) or, without a unit, MiB; a multiple of pages.
 */
int value_size(const char *text, uint64_t min, uint64_t max, uint64_t *bytes,
	       struct complaint *why);

/* Writes a size as value_size() reads it, in the largest unit that divides it. */
#define SIZE_BYTES 24
const char *value_size_text(char text[SIZE_BYTES], uint64_t bytes);

/* A machine's name: 1 to 32 of A-Z a-z 0-9 . _ - */
int value_name(const char *text, struct complaint *why);

/* The name of a network interface, as the kernel takes it and does not expand it. */
int value_ifname(const char *text, char name[IFNAMSIZ], struct complaint *why);

/* One of `count` words, at least one; which of them goes to `*row`. */
int value_choose(const char *text, const char *const *words, unsigned count, unsigned *row,
		 struct complaint *why);

/* Numbers of host CPUs, and ranges such as 0-3, with colons between them. */
int value_cpus(const char *text, struct cpu_list *list, struct complaint *why);

/* A unicast MAC address that is not zero: six pairs of hexadecimal digits with colons. */
int value_mac(const char *text, uint8_t mac[6], struct complaint *why);

/*
 * What was probably meant by a misspelt name: the candidate that the fewest edits lead to, if fewer
 * than `least` do. Offer all of them; `best` stays NULL when none is near.
 */
struct nearest {
	const char *given;
	unsigned least;
	const char *best;
};

void nearest_offer(struct nearest *nearest, const char *candidate);

/*
 * One key of a value like "tap=tap0,mtu=9000". `set` gets the value behind the '=', and the struct
 * that the table is for.
 */
struct option_key {
	const char *key;
	const char *argument; /* what the help calls the value */
	const char *help;     /* lines separated by '\n' */
	int (*set)(void *config, const char *value, struct complaint *why);
	bool either; /* one of the keys marked so has to be given, and only one */
};

#define OPTION_KEYS_MAX 32

struct option_keys {
	const char
		*option; /* that has these keys, such as "--net"; "help" as its value lists them */
	const struct option_key *keys;
	unsigned count; /* at most OPTION_KEYS_MAX */
	/* Takes "+name" and "-name", from the name on; NULL: there are none such. */
	int (*turn)(void *config, const char *name, bool on, struct complaint *why);
};

/* Reads comma-separated key=value, in any order, each key at most once. */
int keys_parse(const struct option_keys *keys, const char *text, void *config,
	       struct complaint *why);

/* --net. Does not look at other NICs. */
int net_config_parse(struct net_config *net, const char *text, struct complaint *why);

/* The keys of --net, for its help. */
extern const struct option_keys net_config_keys;

#endif
