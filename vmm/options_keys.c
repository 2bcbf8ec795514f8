/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Values that are lists of key=value, each kind with a table of its keys: the parser and the help
 * both read the table.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "vmm/options_value.h"
#include "vmm/util.h"

#define ITEM_BYTES 256

static const struct option_key *find_key(const struct option_key *keys, unsigned count,
					 const char *name)
{
	unsigned i;

	for (i = 0; i < count; i++) {
		if (!strcmp(keys[i].key, name))
			return &keys[i];
	}
	return NULL;
}

/* "tap=NAME[,mac=MAC]": what the table allows. */
static const char *keys_synopsis(const struct option_key *keys, unsigned count, char *text,
				 size_t size)
{
	size_t used = 0;
	unsigned i;

	text[0] = '\0';
	for (i = 0; i < count && used < size; i++) {
		const char *comma = i ? "," : "";
		int n = snprintf(text + used, size - used,
				 keys[i].required ? "%s%s=%s" : "[%s%s=%s]", comma, keys[i].key,
				 keys[i].argument);

		used += n > 0 ? (size_t)n : 0;
	}
	return text;
}

/* `item` is one "key=value", which is cut at its '='; `seen` has a bit for each key that was given.
 */
static int parse_item(const struct option_key *keys, unsigned count, char *item, void *config,
		      uint32_t *seen, struct complaint *why)
{
	char *value = strchr(item, '=');
	char quoted[QUOTED_BYTES], synopsis[160];
	const struct option_key *key;
	struct complaint inner;
	uint32_t bit;

	keys_synopsis(keys, count, synopsis, sizeof(synopsis));
	if (!value)
		return complain(why, "%s is not key=value; it reads %s", value_quote(quoted, item),
				synopsis);
	*value++ = '\0';
	key = find_key(keys, count, item);
	if (!key)
		return complain(why, "%s is not known; it reads %s", value_quote(quoted, item),
				synopsis);
	bit = UINT32_C(1) << (key - keys);
	if (*seen & bit)
		return complain(why, "%s is given twice", key->key);
	*seen |= bit;
	if (!*value)
		return complain(why, "%s has no value; it reads %s", key->key, synopsis);
	if (key->set(config, value, &inner))
		return complain(why, "%s %s", key->key, inner.text);
	return 0;
}

int keys_parse(const struct option_key *keys, unsigned count, const char *text, void *config,
	       struct complaint *why)
{
	char item[ITEM_BYTES], synopsis[160];
	uint32_t seen = 0;
	unsigned i;
	int rc;

	for (;;) {
		size_t len = strcspn(text, ",");

		if (len >= sizeof(item))
			return complain(why, "is too long");
		memcpy(item, text, len);
		item[len] = '\0';
		rc = parse_item(keys, count, item, config, &seen, why);
		if (rc)
			return rc;
		if (!text[len])
			break;
		text += len + 1;
	}
	for (i = 0; i < count; i++) {
		if (keys[i].required && !(seen & UINT32_C(1) << i))
			return complain(why, "needs %s; it reads %s", keys[i].key,
					keys_synopsis(keys, count, synopsis, sizeof(synopsis)));
	}
	return 0;
}

static int net_set_tap(void *config, const char *value, struct complaint *why)
{
	struct net_config *net = config;

	return value_ifname(value, net->tap, why);
}

static int net_set_mac(void *config, const char *value, struct complaint *why)
{
	struct net_config *net = config;

	return value_mac(value, net->mac, why);
}

static int net_set_mtu(void *config, const char *value, struct complaint *why)
{
	struct net_config *net = config;
	uint64_t mtu;
	int rc;

	rc = value_number(value, OPTIONS_MIN_MTU, OPTIONS_MAX_MTU, &mtu, why);
	if (!rc)
		net->mtu = (uint16_t)mtu;
	return rc;
}

static const struct option_key net_keys[] = {
	{ "tap", "NAME",
	  "the host's tap interface: one that exists and is yours, or else a new\n"
	  "one, which takes CAP_NET_ADMIN (required)",
	  net_set_tap, true },
	{ "mac", "MAC",
	  "the guest's address, unicast, such as 52:54:00:12:34:56 (default: made\n"
	  "from the names of the host and the tap: the same each time)",
	  net_set_mac, false },
	{ "mtu", "N",
	  "the MTU that the guest is told, 68 to 65535 (default: none is told; the\n"
	  "guest takes 1500)",
	  net_set_mtu, false },
};

_Static_assert(ARRAY_SIZE(net_keys) <= OPTION_KEYS_MAX, "a bit for each key");

int net_config_parse(struct net_config *net, const char *text, struct complaint *why)
{
	memset(net, 0, sizeof(*net));
	return keys_parse(net_keys, ARRAY_SIZE(net_keys), text, net, why);
}

const struct option_key *net_config_keys(unsigned *count)
{
	*count = ARRAY_SIZE(net_keys);
	return net_keys;
}
