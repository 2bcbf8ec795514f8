/* SPDX-License-Identifier: GPL-2.0-or-later */
/* Between transport_pci.c and its common configuration registers. */
#ifndef WHELP_VIRTIO_TRANSPORT_PCI_REGS_H
#define WHELP_VIRTIO_TRANSPORT_PCI_REGS_H

#include "devices/virtio/transport_pci.h"

/* The block's bytes, up to and with queue_reset. */
#define VIRTIO_PCI_COMMON_BYTES 0x3cu

/* An access of `len` bytes at `offset` of the block, under the transport's lock. */
void virtio_pci_common_read(struct virtio_pci *t, uint64_t offset, void *data, unsigned len);
void virtio_pci_common_write(struct virtio_pci *t, uint64_t offset, const void *data, unsigned len);

/* The registers that are the transport's own, as after power-on. */
void virtio_pci_reset_registers(struct virtio_pci *t);

/* The queue's vector is another one: what it is called by follows. */
void virtio_pci_update_call(struct virtio_pci *t, unsigned queue);

/* Sets the ISR status, and the INTx pin with it (4.1.4.5). */
void virtio_pci_set_isr(struct virtio_pci *t, uint8_t isr);

#endif
