/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Kicks and interrupts on every kind of ring, against a model of what the specification says:
 * places in the ring are counted on and on, and each side asks for one of them, or for all, or for
 * none.
 *
 * A place is named modulo 2^16 (split) or two laps (packed): one that was asked for long ago and
 * passed comes around again.
 */
#include "tests/unit/libtraffic.h"

#include <string.h>

#include "tests/driver/packed_layout.h"
#include "tests/driver/split_layout.h"
#include "vmm/util.h"

#define SIZE_SPLIT  32u
#define SIZE_PACKED 37u

static unsigned ring_size(const struct vq_pair *p)
{
	return p->kind->packed ? SIZE_PACKED : SIZE_SPLIT;
}

/* What one side asked for. */
struct wish {
	bool on;
	bool at_place; /* only when `place` is passed */
	unsigned place;
};

static bool wanted(const struct vq_pair *p, const struct wish *wish, unsigned from, unsigned to)
{
	unsigned round = p->kind->packed ? 2 * SIZE_PACKED : 0x10000;

	if (!wish->on || from == to)
		return false;
	return !wish->at_place || (wish->place % round + round - from % round) % round < to - from;
}

/*
 * At first each side wants everything; event indices are 0, on a packed ring they are not in use.
 */
static struct wish first_wish(const struct vq_pair *p)
{
	return (struct wish){ .on = true, .at_place = p->kind->event_idx && !p->kind->packed };
}

static unsigned places_popped(const struct traffic *t)
{
	unsigned places = t->added_places;

	for (unsigned n = t->popped; n < t->added; n++)
		places -= kind_places(t->pair->kind, traffic_job(t, n)->pieces);
	return places;
}

static void use_some(struct traffic *t)
{
	unsigned first = t->done;

	while (kind_random(4) && traffic_pop(t))
		traffic_push(t, traffic_job(t, t->popped - 1));
	vq_publish(&t->pair->vq);
	while (t->done < t->pushed)
		traffic_take(t, traffic_job(t, first++));
}

/* How many places buffers take that are available. */
static unsigned places_waiting(const struct traffic *t)
{
	return t->added_places - places_popped(t);
}

/* The driver always publishes what it adds. */
static struct wish ask_for_place(struct traffic *t)
{
	struct vq_pair *p = t->pair;
	unsigned choices[] = { 1, 1 + kind_random(ring_size(p)), ring_size(p) };
	unsigned places = choices[kind_random(3)];
	bool exact = places == 1 || p->kind->event_idx;

	assert_int_equal(vq_holds(&p->vq, places), places_waiting(t) >= places);
	assert_int_equal(vq_is_ready(&p->vq), t->popped < t->published);
	assert_int_equal(vq_kicks_enable_at(&p->vq, places), exact && places_waiting(t) >= places);
	return (struct wish){ exact, p->kind->event_idx, places_popped(t) + places - 1 };
}

static void test_g13_kicks_are_exact(void **state)
{
	struct vq_pair *p = *state;
	struct traffic t = traffic_start(p, (uint16_t)ring_size(p));
	struct wish wish = first_wish(p);

	for (unsigned step = 0; step < kind_count(3000); step++) {
		unsigned from = t.added_places;
		bool kick;

		switch (kind_random(6)) {
		case 0:
			vq_kicks_disable(&p->vq);
			/* On a split ring with event indices there is no such thing. */
			wish.on = p->kind->event_idx && !p->kind->packed;
			break;
		case 1:
			assert_int_equal(vq_kicks_enable(&p->vq), t.popped < t.published);
			wish = (struct wish){ true, p->kind->event_idx, places_popped(&t) };
			break;
		case 2:
			while (kind_random(3) && traffic_add(&t))
				;
			kick = traffic_publish(&t);
			assert_int_equal(kick, wanted(p, &wish, from, t.added_places));
			break;
		case 3:
			use_some(&t);
			break;
		case 4:
			wish = ask_for_place(&t);
			break;
		case 5:
			vq_kicks_withdraw(&p->vq);
			wish = (struct wish){ p->kind->event_idx && !p->kind->packed, true,
					      places_popped(&t) - 1 };
			break;
		}
	}
	traffic_end(&t);
}

static void take_all(struct vq_pair *p, unsigned count)
{
	uint32_t written;
	void *token;

	while (count--) {
		pair_use_one(p, 0);
		assert_true(ring_take(&p->ring, &token, &written));
	}
	assert_false(vq_is_ready(&p->vq));
}

/* Chains of one place, one by one: the kick is for the `places`-th and for no other. */
static void expect_kick_at(struct vq_pair *p, const struct ring_piece *piece, unsigned places)
{
	bool asked = places == 1 || p->kind->event_idx;

	assert_false(vq_is_ready(&p->vq));
	assert_false(vq_kicks_enable_at(&p->vq, places));
	for (unsigned n = 1; n <= p->vq.size; n++) {
		bool kick;

		assert_int_equal(kind_add(p->kind, &p->ring, piece, 1, 0, p), 0);
		assert_int_equal(vq_is_ready(&p->vq), n > 1);
		kick = ring_publish(&p->ring);
		/* Without event indices there are kicks or none. */
		assert_int_equal(kick, asked && (p->kind->event_idx ? n == places : true));
		assert_true(vq_is_ready(&p->vq));
		assert_int_equal(vq_holds(&p->vq, places), n >= places);
		assert_false(n < p->vq.size && vq_holds(&p->vq, n + 1));
	}
	/* Asked for too late: it is there. */
	assert_int_equal(vq_kicks_enable_at(&p->vq, places), asked);
	take_all(p, p->vq.size);
	vq_kicks_disable(&p->vq);
}

/* Places 1, some and all of the ring, from every position in it, and around 2^16. */
static void test_a_kick_at_the_nth_place(void **state)
{
	static const unsigned sizes[] = { 1, 2, 8, 16 };
	struct vq_pair *p = *state;

	for (unsigned s = 0; s < ARRAY_SIZE(sizes); s++) {
		unsigned size = sizes[s], before = s == 2 ? 65536 - 3 * size : 0;
		struct ring_piece piece;

		pair_start_kind(p, (uint16_t)size);
		piece = (struct ring_piece){ board_alloc(&p->board, 8, 8), 8 };
		for (; before; before--) {
			assert_int_equal(kind_add(p->kind, &p->ring, &piece, 1, 0, p), 0);
			ring_publish(&p->ring);
			take_all(p, 1);
		}
		for (unsigned at = 0; at <= 2 * size; at++) {
			for (unsigned places = 1; places <= size; places++)
				expect_kick_at(p, &piece, places);
			/* More than the ring has is all of it. */
			if (p->kind->event_idx)
				assert_false(vq_kicks_enable_at(&p->vq, size + 1));
			assert_int_equal(kind_add(p->kind, &p->ring, &piece, 1, 0, p), 0);
			assert_int_equal(ring_publish(&p->ring), p->kind->event_idx && size == 1);
			take_all(p, 1);
		}
		assert_null(p->ring.error);
		assert_null(p->vq.fault);
	}
}

/* A dead queue is ready: whoever looks has to find that. */
static void test_a_dead_queue_is_ready(void **state)
{
	struct vq_pair *p = *state;

	pair_start_kind(p, 8);
	assert_false(vq_is_ready(&p->vq));
	vq_kill(&p->vq, "for this test");
	assert_true(vq_is_ready(&p->vq));
	assert_false(vq_holds(&p->vq, 1));
}

/* One chain is staged, and not published: that counts for nothing. */
static void stage_one(struct traffic *t)
{
	struct vq_pair *p = t->pair;
	struct job *job = traffic_job(t, t->done);

	vq_needs_interrupt(&p->vq);
	assert_true(traffic_add(t));
	traffic_publish(t);
	assert_true(traffic_pop(t));
	traffic_push(t, job);
	assert_false(vq_needs_interrupt(&p->vq));
	vq_publish(&p->vq);
	traffic_take(t, job);
}

/* As many chains as surely fit into so many places; all fit into an empty ring. */
static unsigned fitting(unsigned places, unsigned size)
{
	return places == size ? size : places / TRAFFIC_PIECES;
}

/*
 * The device decides once in a while, for all that it published, which is not more than a lap:
 * nobody who sleeps is further behind.
 */
static void test_g13_interrupts_are_exact(void **state)
{
	struct vq_pair *p = *state;
	unsigned size = ring_size(p), decided = 0;
	struct traffic t = traffic_start(p, (uint16_t)size);
	struct wish wish = first_wish(p);

	for (unsigned step = 0; step < kind_count(3000); step++) {
		unsigned ahead, batch;

		switch (kind_random(5)) {
		case 0:
			ring_interrupts_disable(&p->ring);
			wish.on = false;
			break;
		case 1:
			assert_false(ring_interrupts_enable(&p->ring));
			wish = (struct wish){ true, p->kind->event_idx, t.used_places };
			break;
		case 2:
			ahead = kind_random(size);
			if (!p->kind->event_idx)
				break;
			ring_interrupts_ahead(&p->ring, ahead);
			wish = (struct wish){ true, true, t.used_places + ahead };
			break;
		case 3:
			batch = fitting(size - (t.used_places - decided), size);
			if (batch)
				traffic_round(&t, 1 + kind_random(batch));
			break;
		case 4:
			decided = t.used_places;
			stage_one(&t);
			break;
		}
		if (kind_random(3))
			continue;
		assert_int_equal(vq_needs_interrupt(&p->vq),
				 wanted(p, &wish, decided, t.used_places));
		assert_false(vq_needs_interrupt(&p->vq));
		decided = t.used_places;
	}
	traffic_end(&t);
}

/* Many chains may go by, with a driver that looks by itself, before the device decides. */
static void test_a_decision_after_many_laps(void **state)
{
	static const unsigned counts[] = { 65535, 65536, 65537, 65600 };
	struct vq_pair *p = *state;
	struct ring_piece piece;

	for (unsigned i = 0; i < ARRAY_SIZE(counts); i++) {
		uint32_t written;
		void *token;

		pair_start_kind(p, 8);
		piece = (struct ring_piece){ board_alloc(&p->board, 8, 8), 8 };
		ring_interrupts_disable(&p->ring);
		for (unsigned n = 0; n < counts[i]; n++) {
			assert_int_equal(kind_add(p->kind, &p->ring, &piece, 1, 0, p), 0);
			ring_publish(&p->ring);
			/* Then it goes to sleep. */
			if (n + 1 == counts[i])
				assert_false(ring_interrupts_enable(&p->ring));
			pair_use_one(p, 0);
			assert_true(ring_take(&p->ring, &token, &written));
		}
		assert_true(vq_needs_interrupt(&p->vq));
		assert_false(vq_needs_interrupt(&p->vq));
	}
}

/* Without event indices those fields are not the device's to touch. */
static void test_g13_off_leaves_the_event_fields_alone(void **state)
{
	struct vq_pair *p = *state;
	unsigned size = ring_size(p);
	struct traffic t;
	uint64_t gpa;
	uint8_t *field;
	size_t bytes;

	if (p->kind->event_idx)
		return;
	t = traffic_start(p, (uint16_t)size);
	if (p->kind->packed) {
		gpa = p->ring.device_gpa + offsetof(struct packed_event, position);
		bytes = sizeof(le16);
	} else {
		gpa = p->ring.device_gpa + sizeof(struct split_used) +
		      size * sizeof(struct split_used_elem);
		bytes = sizeof(le16);
	}
	field = board_ptr(&p->board, gpa, bytes);
	memset(field, 0xa5, bytes);
	for (unsigned i = 0; i < 100; i++) {
		vq_kicks_disable(&p->vq);
		traffic_round(&t, 1 + kind_random(size));
		vq_needs_interrupt(&p->vq);
		vq_kicks_enable(&p->vq);
	}
	for (unsigned i = 0; i < bytes; i++)
		assert_int_equal(field[i], 0xa5);
	traffic_end(&t);
}

int main(void)
{
	const struct kind_test tests[] = {
		KIND_TEST(test_g13_kicks_are_exact),
		KIND_TEST(test_a_kick_at_the_nth_place),
		KIND_TEST(test_a_dead_queue_is_ready),
		KIND_TEST(test_g13_interrupts_are_exact),
		KIND_TEST(test_a_decision_after_many_laps),
		KIND_TEST(test_g13_off_leaves_the_event_fields_alone),
	};

	return kinds_run(tests, ARRAY_SIZE(tests), pair_setup_kind, pair_teardown);
}
