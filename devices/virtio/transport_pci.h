/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * virtio over PCI, modern only (virtio 1.3, section 4.1): the register blocks, MSI-X or INTx, kicks
 * by eventfd.
 */
#ifndef WHELP_VIRTIO_TRANSPORT_PCI_H
#define WHELP_VIRTIO_TRANSPORT_PCI_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "devices/msix.h"
#include "devices/pci.h"
#include "devices/virtio/device.h"
#include "vmm/platform.h"

/* One MSI-X vector's way to the guest. */
struct virtio_pci_message {
	unsigned source;
	int fd;
};

/* What a queue is called by instead of queue_interrupt: see virtio_transport_ops. */
struct virtio_pci_call {
	int fd;	    /* -1: by queue_interrupt only */
	int source; /* the message that a count on `fd` raises by itself; -1: none */
};

struct virtio_pci {
	struct pci_function function;
	struct msix msix;
	struct virtio_device *device;
	const struct platform *platform;
	struct virtio_pci_message *messages; /* one a vector */
	unsigned message_count;
	bool bus_master; /* as the guest last set it, under the host bridge's lock */
	atomic_bool commit_at_once; /* DRIVER_OK is set: messages are no longer only staged */
	enum platform_space kicks; /* where the notify addresses are */
	bool kicks_exit; /* kicks come as exits, without KVM's short cut; set before plugging */
	unsigned window; /* offset of the configuration access capability */
	pthread_mutex_t lock; /* the registers, and all calls into the device */
	uint32_t device_feature_select;
	uint32_t driver_feature_select;
	uint16_t queue_select;
	atomic_ushort config_vector;
	atomic_ushort *queue_vectors;
	pthread_mutex_t calls_lock; /* `calls`; innermost */
	struct virtio_pci_call *calls; /* one a queue */
	pthread_mutex_t isr_lock; /* the ISR status and the pin that follows it */
	uint8_t isr;
};

/*
 * Puts a transport in front of `device`, which stays the caller's and must outlive it; then plug
 * `function`. `class_code` is PCI's; `kicks` says whether the notify addresses are in a memory BAR
 * or an I/O BAR of their own. Logs; 0 or -errno. virtio_pci_fini() is fine on a zeroed struct; it
 * resets the device first.
 */
int virtio_pci_init(struct virtio_pci *transport, struct virtio_device *device,
		    const struct platform *platform, uint32_t class_code,
		    enum platform_space kicks);
void virtio_pci_fini(struct virtio_pci *transport);

/*
 * Resets the device as a driver would: when this returns none of its threads runs. Fine on a zeroed
 * struct.
 */
void virtio_pci_reset(struct virtio_pci *transport);

#endif
