/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Each step of building needs the ones before it, and guest_fini() takes down whatever of them was
 * reached, in reverse: vCPUs, devices, buses, memory.
 */
#include "vmm/machine_guest.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "vmm/affinity.h"
#include "vmm/log.h"
#include "vmm/util.h"
#include "vmm/x86/acpi.h"
#include "vmm/x86/cpu.h"
#include "vmm/x86/layout.h"

#define NET_CLASS      0x020000u
#define FIRST_NIC_SLOT 1u

_Static_assert(FIRST_NIC_SLOT + OPTIONS_MAX_NETS <= PCI_SLOTS, "a slot for every NIC");

static void power_event(void *ctx, enum power_event event)
{
	static const enum guest_event events[] = {
		[POWER_OFF] = GUEST_OFF,
		[POWER_RESET] = GUEST_RESET,
		[POWER_PANIC] = GUEST_PANIC,
	};
	struct guest *g = ctx;

	g->host->event(g->host->ctx, events[event]);
}

static void vcpu_ended(void *ctx, enum vcpu_end why)
{
	struct guest *g = ctx;

	g->host->event(g->host->ctx,
		       why == VCPU_TRIPLE_FAULT ? GUEST_TRIPLE_FAULT : GUEST_INTERNAL_ERROR);
}

static int add_ram(struct mem *mem, uint64_t size)
{
	uint64_t low = MIN(size, LAYOUT_GAP);
	int err = mem_add(mem, 0, low);

	if (!err && size > low)
		err = mem_add(mem, LAYOUT_GAP_END, size - low);
	if (err)
		log_error("--memory %lluM: the host does not give that much: %s; ask for less, or "
			  "raise `ulimit -v`", (unsigned long long)(size >> 20), strerror(-err));
	return err;
}

static int check_cpus(const struct guest *g)
{
	unsigned cpus = g->host->config->cpus, most = kvm_max_vcpus(&g->kvm);

	if (cpus <= most)
		return 0;
	log_error("--cpus %u is more than the %u this KVM allows: ask for fewer", cpus, most);
	return -EINVAL;
}

static int build_memory(struct guest *g)
{
	int err = add_ram(&g->mem, g->host->config->memory);

	if (err)
		return err;
	return kvm_add_memory(&g->kvm, &g->mem);
}

static int plug_ports(struct guest *g)
{
	const struct {
		uint16_t base;
		uint16_t size;
		const struct bus_ops *ops;
		void *ctx;
	} ranges[] = {
		{ LAYOUT_COM1, SERIAL_SIZE, &serial_bus_ops, &g->com1 },
		{ LAYOUT_COM2, SERIAL_SIZE, &serial_bus_ops, &g->com2 },
		{ LAYOUT_POWER, POWER_SIZE, &power_bus_ops, &g->power },
		{ LAYOUT_KEYBOARD, POWER_KEYBOARD_SIZE, &power_keyboard_bus_ops, &g->power },
		{ LAYOUT_PANIC, POWER_PANIC_SIZE, &power_panic_bus_ops, &g->power },
		{ LAYOUT_PCI_CONFIG, LAYOUT_PCI_CONFIG_SIZE, &pci_host_port_ops, &g->pci },
	};

	for (unsigned i = 0; i < ARRAY_SIZE(ranges); i++) {
		int err = bus_add(&g->pio, ranges[i].base, ranges[i].size, ranges[i].ops,
				  ranges[i].ctx);

		if (err)
			return err;
	}
	return bus_add(&g->mmio, LAYOUT_ECAM, LAYOUT_ECAM_SIZE, &pci_host_ecam_ops, &g->pci);
}

static int build_board(struct guest *g)
{
	const struct pci_host_config pci = {
		.mmio = &g->mmio,
		.pio = &g->pio,
		.platform = &g->platform,
		.memory = { .base = LAYOUT_PCI_MEM, .size = LAYOUT_PCI_MEM_END - LAYOUT_PCI_MEM },
		.io = { .base = LAYOUT_PCI_IO, .size = LAYOUT_PCI_IO_END - LAYOUT_PCI_IO },
		.first_line = LAYOUT_PCI_IRQ,
		.lines = LAYOUT_PCI_IRQS,
	};
	int err;

	serial_init(&g->com1, g->host->com1, &g->platform, LAYOUT_COM1_IRQ);
	serial_init(&g->com2, g->host->com2, &g->platform, LAYOUT_COM2_IRQ);
	power_init(&g->power, LAYOUT_SLEEP_TYPE_S5, LAYOUT_RESET_VALUE, power_event, g);
	pci_host_init(&g->pci, &pci);
	err = plug_ports(g);
	if (err)
		log_error("cannot lay out the machine's devices: %s", strerror(-err));
	return err;
}

/*
 * Without one from the user, an address that is the same each time on this host's tap, and differs
 * from that of other hosts and taps: a hash of both names (FNV-1a) in a locally administered
 * address.
 */
static void choose_mac(uint8_t mac[6], const struct net_config *config, const char *tap)
{
	static const uint8_t none[6];
	char seed[HOST_NAME_MAX + IFNAMSIZ + 2] = "";
	uint64_t hash = 0xcbf29ce484222325ull;

	memcpy(mac, config->mac, sizeof(none));
	if (memcmp(mac, none, sizeof(none)))
		return;
	gethostname(seed, HOST_NAME_MAX);
	strcat(strcat(seed, "/"), tap);
	for (const char *c = seed; *c; c++)
		hash = (hash ^ (uint8_t)*c) * 0x100000001b3ull;
	memcpy(mac, &hash, sizeof(none));
	mac[0] = (uint8_t)((mac[0] & 0xfc) | 2); /* unicast, locally administered */
}

static int build_nic(struct guest *g, unsigned index)
{
	const struct net_config *config = &g->host->config->nets[index];
	struct virtio_net_options options = {
		.mtu = config->mtu,
		.rx_ring = (uint16_t)config->rx_ring,
		.tx_ring = (uint16_t)config->tx_ring,
		.speed = config->speed,
		.duplex = config->duplex,
		.tuning = config->tuning,
		.guest_cpus = g->host->config->cpus,
		.lock = &g->exits,
		.vhost = config->vhost,
	};
	struct nic *nic = calloc(1, sizeof(*nic));
	char affinity[40];
	int err;

	if (!nic) {
		log_error("net%u: out of memory", index);
		return -ENOMEM;
	}
	g->nics[index] = nic;
	snprintf(nic->name, sizeof(nic->name), "net%u", index);
	snprintf(affinity, sizeof(affinity), "--net affinity= (net%u)", index);
	err = affinity_check(&config->tuning.cpus, affinity);
	if (err)
		return err;
	options.name = nic->name;
	memcpy(options.wanted.word, config->wanted, sizeof(options.wanted.word));
	memcpy(options.required.word, config->required, sizeof(options.required.word));
	choose_mac(options.mac, config, g->host->backends[index]->name);
	err = virtio_net_init(&nic->net, &options, g->host->backends[index], &g->mem);
	if (!err)
		err = virtio_pci_init(&nic->pci, &nic->net.device, &g->platform, NET_CLASS,
				      config->notify_pio ? PLATFORM_PIO : PLATFORM_MMIO);
	if (err)
		return err;
	nic->pci.kicks_exit = config->tuning.lock != NET_LOCK_NONE;
	err = pci_host_plug(&g->pci, FIRST_NIC_SLOT + index, &nic->pci.function);
	if (err)
		log_error("%s: no room for it on the PCI bus: %s", options.name, strerror(-err));
	return err;
}

/* Some NIC's workers share a lock with the exits. */
static bool wants_lock(const struct run_config *config)
{
	for (unsigned i = 0; i < config->net_count; i++)
		if (config->nets[i].tuning.lock != NET_LOCK_NONE)
			return true;
	return false;
}

static int build_cpus(struct guest *g, const struct boot_entry *entry)
{
	unsigned count = g->host->config->cpus;

	g->vcpus = calloc(count, sizeof(*g->vcpus));
	if (!g->vcpus) {
		log_error("out of memory for %u CPUs", count);
		return -ENOMEM;
	}
	for (; g->vcpu_count < count; g->vcpu_count++) {
		struct vcpu *vcpu = &g->vcpus[g->vcpu_count];
		int err = vcpu_init(vcpu, &g->kvm, g->vcpu_count);

		vcpu->pio = &g->pio;
		vcpu->mmio = &g->mmio;
		vcpu->ended = vcpu_ended;
		vcpu->ctx = g;
		vcpu->cpu = cpu_list_choose(&g->host->config->affinity, g->vcpu_count);
		vcpu->lock = wants_lock(g->host->config) ? &g->exits : NULL;
		if (!err)
			err = x86_vcpu_setup(&g->kvm, vcpu, count, entry);
		if (err) {
			vcpu_fini(vcpu);
			return err;
		}
	}
	return 0;
}

int guest_init(struct guest *g, const struct guest_host *host)
{
	struct boot_entry entry;
	int err;

	memset(g, 0, sizeof(*g));
	g->host = host;
	g->built = true;
	pthread_mutex_init(&g->exits, NULL);
	mem_init(&g->mem);
	bus_init(&g->pio);
	bus_init(&g->mmio);
	g->platform = (struct platform){ .ops = &kvm_platform_ops, .ctx = &g->kvm };
	err = kvm_init(&g->kvm);
	if (!err)
		err = check_cpus(g);
	if (!err)
		err = affinity_check(&host->config->affinity, "--affinity");
	if (!err)
		err = build_memory(g);
	if (!err)
		err = boot_load(host->files, &g->mem, &entry);
	if (err)
		return err;
	if (!acpi_build(&g->mem, host->config->cpus)) {
		log_error("no room for the ACPI tables of %u CPUs", host->config->cpus);
		return -ENOSPC;
	}
	err = build_board(g);
	for (unsigned i = 0; !err && i < host->config->net_count; i++)
		err = build_nic(g, i);
	return err ? err : build_cpus(g, &entry);
}

int guest_start(struct guest *g)
{
	for (unsigned i = 0; i < g->vcpu_count; i++) {
		int err = vcpu_start(&g->vcpus[i]);

		if (err)
			return err;
	}
	return 0;
}

static void stop_cpus(struct guest *g)
{
	/* All are asked before one is waited for: they stop side by side. */
	for (unsigned i = 0; i < g->vcpu_count; i++)
		vcpu_request_stop(&g->vcpus[i]);
	for (unsigned i = 0; i < g->vcpu_count; i++)
		vcpu_fini(&g->vcpus[i]);
	free(g->vcpus);
	g->vcpus = NULL;
	g->vcpu_count = 0;
}

void guest_fini(struct guest *g)
{
	if (!g->built)
		return;
	stop_cpus(g);
	/* The devices' workers end first: they raise interrupts. */
	for (unsigned i = 0; i < ARRAY_SIZE(g->nics); i++)
		if (g->nics[i])
			virtio_pci_reset(&g->nics[i]->pci);
	/* Then KVM gives up the BARs' eventfds, while the devices that own them still live. */
	if (g->pci.at.platform)
		pci_host_fini(&g->pci);
	for (unsigned i = 0; i < ARRAY_SIZE(g->nics); i++) {
		if (!g->nics[i])
			continue;
		virtio_pci_fini(&g->nics[i]->pci);
		virtio_net_fini(&g->nics[i]->net);
		free(g->nics[i]);
		g->nics[i] = NULL;
	}
	if (g->com1.chardev)
		serial_fini(&g->com1);
	if (g->com2.chardev)
		serial_fini(&g->com2);
	kvm_fini(&g->kvm);
	bus_fini(&g->mmio);
	bus_fini(&g->pio);
	mem_fini(&g->mem);
	pthread_mutex_destroy(&g->exits);
	g->built = false;
}

void guest_announce(struct guest *g)
{
	for (unsigned i = 0; i < OPTIONS_MAX_NETS && g->nics[i]; i++)
		virtio_net_announce(&g->nics[i]->net);
}
