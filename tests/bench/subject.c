/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A burst that takes a system call for each frame is kept shorter than what is left of a time
 * slice, mostly, on a machine that has other things to do, too.
 *
 * Buffers are as Linux's driver has them. Sending: a frame of up to 1,514 bytes is in one piece
 * with its header; a larger one has its headers in one piece and the rest in pages. Receiving:
 * mergeable buffers of 1,536 bytes, and pages for large frames.
 */
#include <string.h>

#include "tests/bench/subject.h"
#include "vmm/util.h"

#define RX_BUFFER   1536u
#define HEADERS	    (BENCH_HEADER + 54u) /* of TCP over IPv4 */
#define MEMORY_MAX  MIB(16)		 /* of all pairs */
#define LARGE_FRAME 1515u
#define SLOW_BURST  256u

static unsigned pages(unsigned bytes)
{
	return (bytes + PAGE_SIZE - 1) / PAGE_SIZE;
}

static void lay_out(struct subject *s)
{
	unsigned packet = BENCH_HEADER + s->bench->size;
	bool large = s->bench->size >= LARGE_FRAME;

	s->buffer_bytes = large ? PAGE_SIZE : s->bench->rx ? RX_BUFFER : packet;
	s->stride = (uint32_t)align_up(s->buffer_bytes, 64);
	s->buffers = large ? pages(packet) : 1;
	if (large && !s->bench->rx)
		s->buffers = 1 + pages(packet - HEADERS);
}

static void choose_burst(struct subject *s)
{
	uint64_t frame = (uint64_t)s->buffers * s->stride;
	unsigned slots = s->bench->rx ? s->buffers : 1;

	s->burst = MIN(s->bench->ring / slots, s->wire->capacity);
	if (s->bench->backend != BENCH_NULL)
		s->burst = MIN(s->burst, SLOW_BURST);
	s->burst = (unsigned)MIN(s->burst, MEMORY_MAX / s->bench->pairs / frame);
	if (s->burst < 2)
		bench_die("the ring or the wire does not hold two frames");
}

uint64_t subject_buffer(const struct subject *s, unsigned pair, unsigned frame, unsigned nth,
			uint32_t *len)
{
	uint32_t before = nth ? HEADERS + (nth - 1) * s->buffer_bytes : 0;
	uint32_t packet = BENCH_HEADER + s->bench->size;

	if (s->bench->rx || s->buffers == 1)
		*len = s->buffer_bytes;
	else if (!nth)
		*len = HEADERS;
	else
		*len = MIN(s->buffer_bytes, packet - before);
	return s->memory[pair] + ((uint64_t)frame * s->buffers + nth) * s->stride;
}

static void fill(struct subject *s, unsigned pair, unsigned frame)
{
	const uint8_t *from = s->wire->packets[pair].bytes;

	for (unsigned i = 0; i < s->buffers; i++) {
		uint32_t len;
		uint64_t at = subject_buffer(s, pair, frame, i, &len);

		memcpy(board_ptr(&s->board, at, len), from, len);
		from += len;
	}
}

void subject_init(struct subject *s, const struct bench *bench, struct wire *wire)
{
	s->bench = bench;
	s->wire = wire;
	s->movers = 1;
	lay_out(s);
	choose_burst(s);
	for (unsigned pair = 0; pair < bench->pairs; pair++) {
		s->memory[pair] = board_alloc(
			&s->board, (uint64_t)s->burst * s->buffers * s->stride, PAGE_SIZE);
		for (unsigned i = 0; i < s->burst && !bench->rx; i++)
			fill(s, pair, i);
	}
}
