/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Constants of the Linux headers that are newer than Debian 12's (Linux 6.1), each with the version
 * it came in. The only place for them; a header that has one already wins.
 */
#ifndef WHELP_LINUX_NEW_H
#define WHELP_LINUX_NEW_H

#include <linux/if_tun.h>
#include <linux/vhost.h>
#include <linux/virtio_config.h>
#include <linux/virtio_net.h>

/* Linux 6.2: UDP segmentation. */
#ifndef VIRTIO_NET_F_GUEST_USO4
#define VIRTIO_NET_F_GUEST_USO4	   54
#define VIRTIO_NET_F_GUEST_USO6	   55
#define VIRTIO_NET_F_HOST_USO	   56
#define VIRTIO_NET_HDR_GSO_UDP_L4  5
#endif
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#define TUN_F_USO6 0x40
#endif

/* Linux 6.4. */
#ifndef VIRTIO_F_NOTIFICATION_DATA
#define VIRTIO_F_NOTIFICATION_DATA 38
#endif
#ifndef VIRTIO_NET_F_GUEST_HDRLEN
#define VIRTIO_NET_F_GUEST_HDRLEN 59
#endif

/* Linux 6.6: coalescing by queue. */
#ifndef VIRTIO_NET_F_VQ_NOTF_COAL
#define VIRTIO_NET_F_VQ_NOTF_COAL	  52
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_SET 2
#define VIRTIO_NET_CTRL_NOTF_COAL_VQ_GET 3
#endif

/* Linux 6.8. */
#ifndef VIRTIO_F_NOTIF_CONFIG_DATA
#define VIRTIO_F_NOTIF_CONFIG_DATA 39
#endif

/* Linux 6.10: statistics. Their structures are in devices/virtio/net_ctrl.h. */
#ifndef VIRTIO_NET_F_DEVICE_STATS
#define VIRTIO_NET_F_DEVICE_STATS     50
#define VIRTIO_NET_CTRL_STATS	      8
#define VIRTIO_NET_CTRL_STATS_QUERY   0
#define VIRTIO_NET_CTRL_STATS_GET     1
#define VIRTIO_NET_STATS_TYPE_CVQ      (1ull << 32)
#define VIRTIO_NET_STATS_TYPE_RX_BASIC (1ull << 0)
#define VIRTIO_NET_STATS_TYPE_TX_BASIC (1ull << 16)
#endif

/* Linux 6.17: segmentation inside of UDP tunnels. */
#ifndef VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO      65
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM 66
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO       67
#define VIRTIO_NET_F_HOST_UDP_TUNNEL_GSO_CSUM  68
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_MAPPED      46
#define VIRTIO_NET_F_GUEST_UDP_TUNNEL_GSO_CSUM_MAPPED 47
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4
#define VIRTIO_NET_HDR_F_UDP_TUNNEL_CSUM   8
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV4 0x20
#define VIRTIO_NET_HDR_GSO_UDP_TUNNEL_IPV6 0x40
#endif
#ifndef TUN_F_UDP_TUNNEL_GSO
#define TUN_F_UDP_TUNNEL_GSO	  0x080
#define TUN_F_UDP_TUNNEL_GSO_CSUM 0x100
#endif

/*
 * Linux 6.17: vhost's features beyond 64. The header's own structure ends in an array without a
 * length.
 */
#ifndef VHOST_GET_FEATURES_ARRAY
struct vhost_features_array {
	__u64 count;
	__u64 features[];
};
#define VHOST_GET_FEATURES_ARRAY _IOR(VHOST_VIRTIO, 0x83, struct vhost_features_array)
#define VHOST_SET_FEATURES_ARRAY _IOW(VHOST_VIRTIO, 0x83, struct vhost_features_array)
#endif

#endif
