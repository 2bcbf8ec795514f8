/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Numbers are read digit by digit and not by strtoul(), which takes signs, blanks and other bases,
 * and needs errno to tell overflow. A complaint is composed here, where what is allowed is known;
 * the option and the value that go in front of it are known only to the caller.
 */
#include "vmm/options_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "vmm/util.h"

#define NAME_MAX_CHARS 32

int complain(struct complaint *why, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return -EINVAL;
}

const char *value_quote(char quoted[QUOTED_BYTES], const char *text)
{
	/* The opening quote before it; the dots, the closing quote and the NUL behind it. */
	const size_t room = QUOTED_BYTES - 1 - 3 - 2;
	char *out = quoted;
	size_t i;

	*out++ = '"';
	for (i = 0; text[i] && i < room; i++)
		*out++ = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
	if (text[i])
		out = stpcpy(out, "...");
	strcpy(out, "\"");
	return quoted;
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Reads leading digits; what goes on beyond 2^60 counts as UINT64_MAX. NULL if there are none. */
static const char *read_digits(const char *text, uint64_t *number)
{
	const char *p;

	*number = 0;
	for (p = text; is_digit(*p); p++) {
		unsigned digit = (unsigned)(*p - '0');

		*number = *number < UINT64_MAX / 16 ? *number * 10 + digit : UINT64_MAX;
	}
	return p == text ? NULL : p;
}

int value_number(const char *text, uint64_t min, uint64_t max, uint64_t *number,
		 struct complaint *why)
{
	const char *rest = read_digits(text, number);

	if (!rest || *rest || *number < min || *number > max)
		return complain(why, "must be a whole number from %" PRIu64 " to %" PRIu64, min,
				max);
	return 0;
}

struct size_unit {
	const char *name;
	unsigned shift;
};

/* The short form of each unit stands before the long one. */
static const struct size_unit size_units[] = {
	{ "G", 30 }, { "GiB", 30 }, { "M", 20 }, { "MiB", 20 }, { "K", 10 }, { "KiB", 10 },
};

static int find_unit(const char *name, unsigned *shift)
{
	size_t i;

	if (!*name) {
		*shift = 20;
		return 0;
	}
	for (i = 0; i < ARRAY_SIZE(size_units); i++) {
		if (strcasecmp(size_units[i].name, name))
			continue;
		*shift = size_units[i].shift;
		return 0;
	}
	return -EINVAL;
}

const char *value_size_text(char text[SIZE_BYTES], uint64_t bytes)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(size_units) - 1; i++) {
		if (!(bytes & ((1ull << size_units[i].shift) - 1)))
			break;
	}
	snprintf(text, SIZE_BYTES, "%" PRIu64 "%c", bytes >> size_units[i].shift,
		 size_units[i].name[0]);
	return text;
}

int value_size(const char *text, uint64_t min, uint64_t max, uint64_t *bytes, struct complaint *why)
{
	char low[SIZE_BYTES], high[SIZE_BYTES], quoted[QUOTED_BYTES];
	const char *unit;
	uint64_t number;
	unsigned shift;

	unit = read_digits(text, &number);
	if (!unit || *unit == '.' || *unit == ',')
		return complain(why, "must be a whole number and a unit: K, M or G; such as 512M");
	if (find_unit(unit, &shift))
		return complain(why, "%s is no unit; use K, M, G (or KiB, MiB, GiB; none is MiB)",
				value_quote(quoted, unit));
	if (number > UINT64_MAX >> shift)
		number = UINT64_MAX >> shift;
	*bytes = number << shift;
	if (*bytes < min || *bytes > max)
		return complain(why, "must be from %s to %s", value_size_text(low, min),
				value_size_text(high, max));
	if (*bytes % PAGE_SIZE)
		return complain(why, "must be a multiple of %uK, a page", PAGE_SIZE / 1024);
	return 0;
}

int value_name(const char *text, struct complaint *why)
{
	size_t i;

	for (i = 0; text[i]; i++) {
		if (!is_alnum(text[i]) && !strchr("._-", text[i]))
			break;
	}
	if (text[i] || i < 1 || i > NAME_MAX_CHARS)
		return complain(why, "must be 1 to %u letters, digits, dots, dashes or underscores",
				NAME_MAX_CHARS);
	return 0;
}

int value_ifname(const char *text, char name[IFNAMSIZ], struct complaint *why)
{
	size_t len = strlen(text), i;

	if (len < 1 || len >= IFNAMSIZ)
		return complain(why, "must be 1 to %u characters", IFNAMSIZ - 1);
	if (!strcmp(text, ".") || !strcmp(text, ".."))
		return complain(why, "is no name for an interface");
	for (i = 0; i < len; i++) {
		/* '%' would be a pattern, from which the kernel makes the next free name. */
		if ((unsigned char)text[i] <= ' ' || text[i] == 0x7f || strchr("/:%", text[i]))
			return complain(why, "must not contain blanks, '/', ':' or '%%'");
	}
	memcpy(name, text, len + 1);
	return 0;
}

static int hex_digit(char c)
{
	if (is_digit(c))
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int value_mac(const char *text, uint8_t mac[6], struct complaint *why)
{
	static const uint8_t zero[6];
	uint8_t read[6];
	int high, low;
	unsigned i;

	/* Stops at the first NUL, as that is no digit and no colon. */
	for (i = 0; i < 6; i++, text += 3) {
		high = hex_digit(text[0]);
		low = high < 0 ? -1 : hex_digit(text[1]);
		if (low < 0 || text[2] != (i == 5 ? '\0' : ':'))
			return complain(
				why, "must be six pairs of hexadecimal digits with colons, such as "
				     "52:54:00:12:34:56");
		read[i] = (uint8_t)(high << 4 | low);
	}
	if (read[0] & 1)
		return complain(why, "must be a unicast address: its first byte must be even");
	if (!memcmp(read, zero, sizeof(zero)))
		return complain(why, "must not be all zero");
	memcpy(mac, read, sizeof(read));
	return 0;
}

/* How many single-character edits lead from `a` to `b`, both short; large if one is long. */
static unsigned edit_distance(const char *a, const char *b)
{
	unsigned row[32], i, j;
	size_t len = strlen(b);

	if (strlen(a) >= ARRAY_SIZE(row) || len >= ARRAY_SIZE(row))
		return ARRAY_SIZE(row);
	for (j = 0; j <= len; j++)
		row[j] = j;
	for (i = 0; a[i]; i++) {
		unsigned diagonal = row[0];

		row[0] = i + 1;
		for (j = 1; j <= len; j++) {
			unsigned changed = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			row[j] = MIN(changed, MIN(row[j], row[j - 1]) + 1);
		}
	}
	return row[len];
}

void nearest_offer(struct nearest *nearest, const char *candidate)
{
	unsigned distance = edit_distance(nearest->given, candidate);

	if (distance >= nearest->least)
		return;
	nearest->least = distance;
	nearest->best = candidate;
}

static int add_cpus(struct cpu_list *list, const char *text, struct complaint *why)
{
	uint64_t first, last;
	const char *rest = read_digits(text, &first);

	last = first;
	if (rest && *rest == '-')
		rest = read_digits(rest + 1, &last);
	if (!rest || *rest || first > UINT16_MAX || last > UINT16_MAX)
		return complain(why, "must be numbers of host CPUs, or ranges such as 0-3, with colons "
				     "between them");
	if (last < first)
		return complain(why, "has a range that ends before it begins: %s", text);
	for (; first <= last; first++) {
		if (list->count == AFFINITY_MAX_CPUS)
			return complain(why, "has more than %u CPUs", AFFINITY_MAX_CPUS);
		list->cpus[list->count++] = (uint16_t)first;
	}
	return 0;
}

int value_cpus(const char *text, struct cpu_list *list, struct complaint *why)
{
	char item[24];

	for (;;) {
		size_t len = strcspn(text, ":");
		int rc;

		/* One that is too long to be right is taken for an empty one. */
		snprintf(item, sizeof(item), "%.*s", len < sizeof(item) ? (int)len : 0, text);
		rc = add_cpus(list, item, why);
		if (rc || !text[len])
			return rc;
		text += len + 1;
	}
}

int value_choose(const char *text, const char *const *words, unsigned count, unsigned *row,
		 struct complaint *why)
{
	char all[128] = "";

	for (*row = 0; *row < count; (*row)++)
		if (!strcmp(text, words[*row]))
			return 0;
	for (unsigned i = 0; i < count; i++) {
		size_t used = strlen(all);

		snprintf(all + used, sizeof(all) - used, "%s%s",
			 !i		 ? ""
			 : i + 1 < count ? ", "
					 : " or ",
			 words[i]);
	}
	return complain(why, "must be %s", all);
}
