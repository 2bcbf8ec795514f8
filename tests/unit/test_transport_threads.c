/* SPDX-License-Identifier: GPL-2.0-or-later */
/* What CPUs and a worker do to the PCI transport at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <linux/pci_regs.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "devices/virtio/transport_pci.h"
#include "tests/driver/nic.h"
#include "tests/unit/libfake.h"
#include "vmm/util.h"

/* What threads of a test share. */
struct race {
	struct fake_pci *fake;
	atomic_bool stop;
	atomic_uint go; /* the lap the second CPU may begin */
};

static void set_data(const struct driver *driver, unsigned vector, uint32_t data)
{
	driver_mask_vector(driver, vector, true);
	board_mmio_write(driver->board,
			 driver->table + vector * PCI_MSIX_ENTRY_SIZE + PCI_MSIX_ENTRY_DATA, 4,
			 data);
	driver_mask_vector(driver, vector, false);
}

/* ---- a vector moves at the moment of DRIVER_OK ---- */

#define LAPS 100u

static void *move_once_a_lap(void *arg)
{
	struct race *r = arg;
	struct fake_pci *f = r->fake;

	for (unsigned lap = 1; lap <= LAPS; lap++) {
		while (atomic_load(&r->go) < lap)
			sched_yield();
		set_data(&f->driver, 1, 0x8000 + lap);
		atomic_fetch_add(&r->go, 0x10000);
		while (atomic_load(&r->go) >= 0x10000)
			sched_yield();
	}
	return NULL;
}

static void test_a_message_set_at_driver_ok_takes_effect(void **state)
{
	const struct virtio_features none = { 0 };
	struct fake_pci *f = *state;
	struct race race = { .fake = f };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, move_once_a_lap, &race), 0);
	for (unsigned lap = 1; lap <= LAPS; lap++) {
		assert_true(driver_reset(&f->driver));
		assert_true(driver_negotiate(&f->driver, &none));
		driver_msix_on(&f->driver);
		assert_true(driver_set_queue_vector(&f->driver, 0, 1));
		atomic_store(&race.go, lap);
		driver_add_status(&f->driver, VIRTIO_CONFIG_S_DRIVER_OK);
		while (atomic_load(&race.go) < 0x10000)
			sched_yield();
		assert_int_not_equal(board_message_fd(&f->board,
						      driver_message_address(&f->driver, 1),
						      0x8000 + lap),
				     -1);
		atomic_store(&race.go, 0);
	}
	pthread_join(thread, NULL);
}

/* ---- INTx ---- */

static void *interrupt_main(void *arg)
{
	struct race *r = arg;
	struct fake_pci *f = r->fake;

	while (!atomic_load(&r->stop))
		virtio_queue_interrupt(&f->fake.device, 0);
	return NULL;
}

static void *config_main(void *arg)
{
	struct race *r = arg;
	struct fake_pci *f = r->fake;
	unsigned n = 0;

	/* Everything beside the commands that would turn the registers off. */
	while (!atomic_load(&r->stop)) {
		board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2,
				   PCI_COMMAND_MEMORY | (++n % 2 ? PCI_COMMAND_INTX_DISABLE : 0));
		board_config_write(&f->board, FAKE_SLOT, PCI_INTERRUPT_LINE, 4, n);
		board_config_read(&f->board, FAKE_SLOT, PCI_COMMAND, 4);
		board_pio_write(&f->board, BOARD_PCI_PORTS, 4,
				0x80000000u | FAKE_SLOT << 11 | (n & 0xfc));
		board_pio_read(&f->board, BOARD_PCI_PORTS + 4, 4);
	}
	return NULL;
}

static void *port_main(void *arg)
{
	struct race *r = arg;
	struct fake_pci *f = r->fake;

	while (!atomic_load(&r->stop)) {
		board_pio_write(&f->board, BOARD_PCI_PORTS, 4, 0x80000000u);
		board_pio_read(&f->board, BOARD_PCI_PORTS + 4, 2);
	}
	return NULL;
}

static void test_g21_isr_under_fire(void **state)
{
	void *(*const mains[])(void *) = { interrupt_main, config_main, port_main };
	struct fake_pci *f = *state;
	struct race race = { .fake = f };
	unsigned line = pci_host_line(&f->board.pci, FAKE_SLOT), seen = 0;
	time_t until = time(NULL) + BOARD_PATIENCE / 1000;
	pthread_t threads[ARRAY_SIZE(mains)];

	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, mains[i], &race), 0);
	while (seen < 100) {
		uint64_t isr = board_mmio_read(&f->board, f->driver.isr, 1);

		assert_int_equal(isr & ~1ull, 0);
		seen += isr & 1;
		assert_true(time(NULL) <= until);
	}
	atomic_store(&race.stop, true);
	for (unsigned i = 0; i < ARRAY_SIZE(mains); i++)
		pthread_join(threads[i], NULL);
	/* When all is quiet the line says what the ISR does. */
	board_config_write(&f->board, FAKE_SLOT, PCI_COMMAND, 2, PCI_COMMAND_MEMORY);
	virtio_queue_interrupt(&f->fake.device, 0);
	assert_true(board_line(&f->board, line));
	assert_int_equal(board_mmio_read(&f->board, f->driver.isr, 1), 1);
	assert_false(board_line(&f->board, line));
}

/* ---- a vector that moves under load ---- */

struct mover {
	struct nic *nic;
	atomic_bool stop;
	atomic_uint moves;
};

static void *mover_main(void *arg)
{
	struct mover *m = arg;
	const struct driver *driver = &m->nic->driver;
	uint32_t data = driver_message_data(driver, NIC_RX_VECTOR);

	while (!atomic_load(&m->stop)) {
		set_data(driver, NIC_RX_VECTOR,
			 data ^ (atomic_fetch_add(&m->moves, 1) & 1 ? 0 : 0x100000));
		poll(NULL, 0, 1);
	}
	return NULL;
}

/* Waits for the vector wherever it is now; false when nothing comes. */
static bool wait_moving(const struct driver *driver)
{
	uint64_t address = driver_message_address(driver, NIC_RX_VECTOR);
	uint32_t data = driver_message_data(driver, NIC_RX_VECTOR);
	uint64_t count;
	int fd = -1;

	while (fd < 0) {
		fd = board_message_fd(driver->board, address, data);
		if (fd < 0)
			fd = board_message_fd(driver->board, address, data ^ 0x100000);
	}
	return board_wait_fd(fd, POLLIN, BOARD_PATIENCE) &&
	       read(fd, &count, sizeof(count)) == sizeof(count);
}

static void test_g18_vector_moves_under_load(void **state)
{
	const struct nic_setup plain = { 0 };
	struct nic *nic = *state;
	struct mover mover = { .nic = nic };
	struct ring_piece piece;
	pthread_t thread;

	nic_up(nic, &plain);
	piece = (struct ring_piece){ board_alloc(&nic->board, 200, 1), 200 };
	assert_int_equal(pthread_create(&thread, NULL, mover_main, &mover), 0);
	for (uint32_t i = 0; i < 1000 || atomic_load(&mover.moves) < 20; i++) {
		uint8_t packet[100];
		uint32_t written;
		void *token;

		assert_false(ring_interrupts_enable(&nic->rx));
		assert_int_equal(ring_add(&nic->rx, &piece, 0, 1, nic), 0);
		nic_publish_rx(nic);
		nic_fill(packet, sizeof(packet), i);
		nic_peer_send(nic, packet, sizeof(packet));
		if (!wait_moving(&nic->driver))
			fail_msg("the interrupt of frame %u was lost", i);
		assert_true(ring_take(&nic->rx, &token, &written));
		assert_true(nic_is(board_ptr(&nic->board, piece.gpa, 100), 100, i));
	}
	atomic_store(&mover.stop, true);
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_a_message_set_at_driver_ok_takes_effect,
						fake_pci_setup, fake_pci_teardown),
		cmocka_unit_test_setup_teardown(test_g21_isr_under_fire, fake_pci_setup,
						fake_pci_teardown),
		cmocka_unit_test_setup_teardown(test_g18_vector_moves_under_load, nic_make,
						nic_unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
