/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values that are lists of key=value, each kind with a table of its keys: the parser and the help
 * both read the table. What reads "+name" or "-name" goes to the table's owner.
 */
#include <stdio.h>
#include <string.h>

#include "vmm/options_value.h"
#include "vmm/util.h"

#define ITEM_BYTES     1024 /* the longest item names every feature of a NIC */
#define SYNOPSIS_BYTES 128

static const struct option_key *find_key(const struct option_keys *keys, const char *name)
{
	unsigned i;

	for (i = 0; i < keys->count; i++) {
		if (!strcmp(keys->keys[i].key, name))
			return &keys->keys[i];
	}
	return NULL;
}

/* `it reads tap=NAME[,KEY=VALUE...]; "--net help" lists the keys`. */
static const char *synopsis(const struct option_keys *keys, char text[SYNOPSIS_BYTES])
{
	const char *needed = "", *argument = "";
	unsigned i;

	for (i = 0; i < keys->count; i++) {
		if (!keys->keys[i].either)
			continue;
		needed = keys->keys[i].key;
		argument = keys->keys[i].argument;
		break;
	}
	snprintf(text, SYNOPSIS_BYTES, "it reads %s%s%s[,KEY=VALUE...]; \"%s help\" lists the keys",
		 needed, *needed ? "=" : "", argument, keys->option);
	return text;
}

static int refuse_unknown(const struct option_keys *keys, const char *name, struct complaint *why)
{
	struct nearest nearest = { .given = name, .least = 3 };
	char quoted[QUOTED_BYTES], text[SYNOPSIS_BYTES];
	unsigned i;

	for (i = 0; *name && i < keys->count; i++)
		nearest_offer(&nearest, keys->keys[i].key);
	if (nearest.best)
		return complain(why, "%s is not known; did you mean %s?", value_quote(quoted, name),
				nearest.best);
	return complain(why, "%s is not known; %s", value_quote(quoted, name),
			synopsis(keys, text));
}

/* `item` is one "key=value", which is cut at its '='; `seen` has a bit for each key that was given.
 */
static int parse_item(const struct option_keys *keys, char *item, void *config, uint32_t *seen,
		      struct complaint *why)
{
	char quoted[QUOTED_BYTES], text[SYNOPSIS_BYTES];
	const struct option_key *key;
	struct complaint inner;
	uint32_t bit;
	char *value;

	if (keys->turn && (*item == '+' || *item == '-'))
		return keys->turn(config, item + 1, *item == '+', why);
	value = strchr(item, '=');
	if (!value)
		return complain(why, "%s is not key=value; %s", value_quote(quoted, item),
				synopsis(keys, text));
	*value++ = '\0';
	key = find_key(keys, item);
	if (!key)
		return refuse_unknown(keys, item, why);
	bit = UINT32_C(1) << (key - keys->keys);
	if (*seen & bit)
		return complain(why, "%s is given twice", key->key);
	*seen |= bit;
	if (!*value)
		return complain(why, "%s has no value; it is %s=%s", key->key, key->key,
				key->argument);
	if (key->set(config, value, &inner))
		return complain(why, "%s %s", key->key, inner.text);
	return 0;
}

/* That exactly one of the keys was given of which one has to be. */
static int check_either(const struct option_keys *keys, uint32_t seen, struct complaint *why)
{
	char reads[SYNOPSIS_BYTES], names[64] = "";
	const char *found = NULL;
	bool any = false;
	unsigned i;

	for (i = 0; i < keys->count; i++) {
		const char *key = keys->keys[i].key;
		size_t used = strlen(names);

		if (!keys->keys[i].either)
			continue;
		snprintf(names + used, sizeof(names) - used, "%s%s", any ? " or " : "", key);
		any = true;
		if (!(seen & UINT32_C(1) << i))
			continue;
		if (found)
			return complain(why, "%s and %s contradict each other: give one of them",
					found, key);
		found = key;
	}
	if (any && !found)
		return complain(why, "needs %s; %s", names, synopsis(keys, reads));
	return 0;
}

int keys_parse(const struct option_keys *keys, const char *text, void *config,
	       struct complaint *why)
{
	char item[ITEM_BYTES];
	uint32_t seen = 0;
	int rc;

	for (;;) {
		size_t len = strcspn(text, ",");

		if (len >= sizeof(item))
			return complain(why, "is too long");
		memcpy(item, text, len);
		item[len] = '\0';
		rc = parse_item(keys, item, config, &seen, why);
		if (rc)
			return rc;
		if (!text[len])
			break;
		text += len + 1;
	}
	return check_either(keys, seen, why);
}
