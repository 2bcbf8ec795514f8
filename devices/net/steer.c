/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The program is assembled here, instruction by instruction, and loaded once. Its settings are a
 * map of one value that this process and the kernel share by mmap, so that changing them takes
 * neither privileges nor bpf(2). The value holds two sets, of which the program uses the one that
 * `active` names: a change is written to the other one first.
 *
 * The Toeplitz hash is linear: that of the input is the XOR of those of its bytes, each at its
 * place. A table per place turns the hash into at most 36 look-ups, without a loop over bits for
 * the verifier to follow.
 *
 * What is parsed, and where parsing gives up, is net_hash.c's, to the byte. A VLAN tag may be in
 * the skb's metadata instead of its bytes here, and counts as one of those that net_hash_frame()
 * will see: the tap puts it into the frame.
 */
#include "devices/net/steer.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/virtio_net.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "vmm/util.h"

#define SETTINGS_SHIFT 16

struct steer_settings {
	uint32_t lookup[NET_HASH_INPUT_MAX][256];
	uint32_t types;
	uint32_t mask;
	uint16_t unclassified;
	uint16_t table[NET_HASH_TABLE_MAX];
};

union steer_slot {
	struct steer_settings settings;
	uint8_t size[1u << SETTINGS_SHIFT];
};

struct steer_map {
	union steer_slot slots[2];
	uint32_t active;
};

static_assert(sizeof(union steer_slot) == 1u << SETTINGS_SHIFT,
	      "the program shifts to find a slot");

struct steer {
	int map_fd;
	int program_fd;
	struct steer_map *map;
};

/* ---- assembler ---- */

enum {
	LABEL_UNCLASSIFIED,
	LABEL_TAG,
	LABEL_TAG2,
	LABEL_IP,
	LABEL_IPV4,
	LABEL_IPV4_UDP,
	LABEL_IPV4_PORTS,
	LABEL_IPV4_ONLY,
	LABEL_IPV6,
	LABEL_IPV6_TCP,
	LABEL_IPV6_UDP,
	LABEL_IPV6_PORTS,
	LABEL_IPV6_ONLY,
	LABEL_HASH,
	LABEL_HASHED,
	/* Three for each extension header. */
	LABEL_EXTENSION,
	LABEL_COUNT = LABEL_EXTENSION + 3 * NET_HASH_EXTENSIONS,
};

enum { EXT_PRESENT, EXT_AH, EXT_NEXT };

#define PROGRAM_MAX 1024

/* Jumps name labels at first; link_jumps() puts distances in their place. */
struct assembler {
	struct bpf_insn code[PROGRAM_MAX];
	bool jumps[PROGRAM_MAX];
	unsigned count;
	int labels[LABEL_COUNT];
};

static void emit(struct assembler *as, unsigned opcode, unsigned dst, unsigned src, int offset,
		 int imm)
{
	assert(as->count < PROGRAM_MAX);
	as->code[as->count++] = (struct bpf_insn){
		.code = (uint8_t)opcode,
		.dst_reg = dst & 0xf,
		.src_reg = src & 0xf,
		.off = (int16_t)offset,
		.imm = imm,
	};
}

static void label(struct assembler *as, unsigned name)
{
	as->labels[name] = (int)as->count;
}

static void jump_to(struct assembler *as, unsigned opcode, unsigned dst, unsigned src, int imm,
		    unsigned name)
{
	as->jumps[as->count] = true;
	emit(as, BPF_JMP | opcode, dst, src, (int)name, imm);
}

static void jump(struct assembler *as, unsigned name)
{
	jump_to(as, BPF_JA, 0, 0, 0, name);
}

/* If `reg` compares so with `imm`: BPF_JEQ, BPF_JNE, BPF_JGT and the like. */
static void jump_if(struct assembler *as, unsigned comparison, unsigned reg, int imm, unsigned name)
{
	jump_to(as, comparison | BPF_K, reg, 0, imm, name);
}

static void alu(struct assembler *as, unsigned operation, unsigned dst, int imm)
{
	emit(as, BPF_ALU64 | operation | BPF_K, dst, 0, 0, imm);
}

static void alu_reg(struct assembler *as, unsigned operation, unsigned dst, unsigned src)
{
	emit(as, BPF_ALU64 | operation | BPF_X, dst, src, 0, 0);
}

/* dst = *(src + offset), of size BPF_B, BPF_H or BPF_W. */
static void load(struct assembler *as, unsigned size, unsigned dst, unsigned src, int offset)
{
	emit(as, BPF_LDX | BPF_MEM | size, dst, src, offset, 0);
}

static void load_map_address(struct assembler *as, unsigned dst, int map_fd, size_t offset)
{
	emit(as, BPF_LD | BPF_IMM | BPF_DW, dst, BPF_PSEUDO_MAP_VALUE, 0, map_fd);
	emit(as, 0, 0, 0, 0, (int)offset);
}

static void link_jumps(struct assembler *as)
{
	for (unsigned i = 0; i < as->count; i++)
		if (as->jumps[i])
			as->code[i].off = (int16_t)(as->labels[as->code[i].off] - (int)i - 1);
}

/* ---- program ---- */

#define CTX	 BPF_REG_6
#define TAGGED	 BPF_REG_7 /* by the metadata; while the Ethernet header is parsed */
#define PROTOCOL BPF_REG_7 /* from then on */
#define LENGTH	 BPF_REG_7 /* of the input, in the end */
#define OFFSET	 BPF_REG_8 /* of what is being parsed, in the frame */
#define HASH	 BPF_REG_8 /* in the end */
#define SETTINGS BPF_REG_9 /* the address of `types` */
#define FP	 BPF_REG_10

/*
 * The stack. The IP header is put where its addresses are the beginning of the input, and the ports
 * are read to behind them.
 */
#define INPUT	       (-72)
#define IPV4	       (INPUT - 12)
#define IPV6	       (INPUT - 8)
#define SCRATCH	       (-96)
#define IPV4_ADDRESSES 8
#define IPV6_ADDRESSES 32
#define PORTS	       4
#define EXTENSION      8
#define FIELD(name)    ((int)offsetof(struct steer_settings, name))

/* Copies from OFFSET + `offset` to the stack; jumps if the frame ends before. Clobbers 0 to 5. */
static void read_frame(struct assembler *as, int offset, int stack, int len, unsigned failure)
{
	alu_reg(as, BPF_MOV, BPF_REG_1, CTX);
	alu_reg(as, BPF_MOV, BPF_REG_2, OFFSET);
	alu(as, BPF_ADD, BPF_REG_2, offset);
	alu_reg(as, BPF_MOV, BPF_REG_3, FP);
	alu(as, BPF_ADD, BPF_REG_3, stack);
	alu(as, BPF_MOV, BPF_REG_4, len);
	emit(as, BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_load_bytes);
	jump_if(as, BPF_JNE, BPF_REG_0, 0, failure);
}

/* The same, and jumps if it is beyond the bytes that hashing looks at. */
static void read_in_reach(struct assembler *as, int stack, int len, unsigned failure)
{
	jump_if(as, BPF_JGT, OFFSET, (int)NET_HASH_BYTES - len, failure);
	read_frame(as, 0, stack, len, failure);
}

static void jump_unless_enabled(struct assembler *as, unsigned type, unsigned name)
{
	load(as, BPF_W, BPF_REG_1, SETTINGS, 0);
	alu(as, BPF_AND, BPF_REG_1, (int)type);
	jump_if(as, BPF_JEQ, BPF_REG_1, 0, name);
}

static void write_start(struct assembler *as, int map_fd)
{
	alu_reg(as, BPF_MOV, CTX, BPF_REG_1);
	load_map_address(as, BPF_REG_1, map_fd, offsetof(struct steer_map, active));
	load(as, BPF_W, BPF_REG_1, BPF_REG_1, 0);
	alu(as, BPF_AND, BPF_REG_1, 1);
	alu(as, BPF_LSH, BPF_REG_1, SETTINGS_SHIFT);
	load_map_address(as, SETTINGS, map_fd, FIELD(types));
	alu_reg(as, BPF_ADD, SETTINGS, BPF_REG_1);
}

static void jump_if_tag(struct assembler *as, unsigned name)
{
	jump_if(as, BPF_JEQ, BPF_REG_1, htobe16(0x8100), name);
	jump_if(as, BPF_JEQ, BPF_REG_1, htobe16(0x88a8), name);
}

/* Leaves OFFSET at the IP header and its kind in register 1. */
static void write_ethernet(struct assembler *as)
{
	alu(as, BPF_MOV, OFFSET, 14);
	read_frame(as, -2, SCRATCH, 2, LABEL_UNCLASSIFIED);
	load(as, BPF_H, BPF_REG_1, FP, SCRATCH);
	load(as, BPF_W, TAGGED, CTX, (int)offsetof(struct __sk_buff, vlan_present));
	jump_if_tag(as, LABEL_TAG);
	jump(as, LABEL_IP);

	label(as, LABEL_TAG);
	alu(as, BPF_ADD, OFFSET, 4);
	read_frame(as, -2, SCRATCH, 2, LABEL_UNCLASSIFIED);
	load(as, BPF_H, BPF_REG_1, FP, SCRATCH);
	jump_if(as, BPF_JNE, TAGGED, 0, LABEL_IP);
	jump_if_tag(as, LABEL_TAG2);
	jump(as, LABEL_IP);

	label(as, LABEL_TAG2);
	alu(as, BPF_ADD, OFFSET, 4);
	read_frame(as, -2, SCRATCH, 2, LABEL_UNCLASSIFIED);
	load(as, BPF_H, BPF_REG_1, FP, SCRATCH);

	label(as, LABEL_IP);
	jump_if(as, BPF_JEQ, BPF_REG_1, htobe16(0x0800), LABEL_IPV4);
	jump_if(as, BPF_JEQ, BPF_REG_1, htobe16(0x86dd), LABEL_IPV6);

	label(as, LABEL_UNCLASSIFIED);
	load(as, BPF_H, BPF_REG_0, SETTINGS, FIELD(unclassified) - FIELD(types));
	emit(as, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void write_ipv4(struct assembler *as)
{
	label(as, LABEL_IPV4);
	read_frame(as, 0, IPV4, 20, LABEL_UNCLASSIFIED);
	load(as, BPF_B, BPF_REG_1, FP, IPV4);
	jump_if(as, BPF_JLT, BPF_REG_1, 0x45, LABEL_UNCLASSIFIED);
	jump_if(as, BPF_JGT, BPF_REG_1, 0x4f, LABEL_UNCLASSIFIED);
	alu(as, BPF_AND, BPF_REG_1, 0xf);
	alu(as, BPF_LSH, BPF_REG_1, 2);
	alu_reg(as, BPF_ADD, OFFSET, BPF_REG_1);
	load(as, BPF_B, PROTOCOL, FP, IPV4 + 9);
	load(as, BPF_H, BPF_REG_1, FP, IPV4 + 6);
	alu(as, BPF_AND, BPF_REG_1, htobe16(0x3fff));
	jump_if(as, BPF_JNE, BPF_REG_1, 0, LABEL_IPV4_ONLY);
	jump_if(as, BPF_JEQ, PROTOCOL, IPPROTO_UDP, LABEL_IPV4_UDP);
	jump_if(as, BPF_JNE, PROTOCOL, IPPROTO_TCP, LABEL_IPV4_ONLY);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_TCPv4, LABEL_IPV4_ONLY);
	jump(as, LABEL_IPV4_PORTS);

	label(as, LABEL_IPV4_UDP);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_UDPv4, LABEL_IPV4_ONLY);

	label(as, LABEL_IPV4_PORTS);
	read_in_reach(as, INPUT + IPV4_ADDRESSES, PORTS, LABEL_IPV4_ONLY);
	alu(as, BPF_MOV, LENGTH, IPV4_ADDRESSES + PORTS);
	jump(as, LABEL_HASH);

	label(as, LABEL_IPV4_ONLY);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_IPv4, LABEL_UNCLASSIFIED);
	alu(as, BPF_MOV, LENGTH, IPV4_ADDRESSES);
	jump(as, LABEL_HASH);
}

/* The `n`th extension header, if PROTOCOL is one: moves OFFSET and PROTOCOL behind it. */
static void write_extension(struct assembler *as, unsigned n)
{
	static const uint8_t protocols[] = {
		IPPROTO_HOPOPTS, IPPROTO_ROUTING, IPPROTO_FRAGMENT, IPPROTO_AH,
		IPPROTO_DSTOPTS, IPPROTO_MH,	  139 /* HIP */,    140 /* Shim6 */,
	};
	unsigned labels = LABEL_EXTENSION + 3 * n;

	jump_if(as, BPF_JEQ, PROTOCOL, IPPROTO_TCP, LABEL_IPV6_TCP);
	jump_if(as, BPF_JEQ, PROTOCOL, IPPROTO_UDP, LABEL_IPV6_UDP);
	for (unsigned i = 0; i < ARRAY_SIZE(protocols); i++)
		jump_if(as, BPF_JEQ, PROTOCOL, protocols[i], labels + EXT_PRESENT);
	jump(as, LABEL_IPV6_ONLY);

	label(as, labels + EXT_PRESENT);
	read_in_reach(as, SCRATCH, EXTENSION, LABEL_IPV6_ONLY);
	load(as, BPF_B, BPF_REG_2, FP, SCRATCH + 1);
	jump_if(as, BPF_JEQ, PROTOCOL, IPPROTO_AH, labels + EXT_AH);
	alu(as, BPF_ADD, BPF_REG_2, 1);
	alu(as, BPF_LSH, BPF_REG_2, 3);
	jump_if(as, BPF_JNE, PROTOCOL, IPPROTO_FRAGMENT, labels + EXT_NEXT);
	load(as, BPF_H, BPF_REG_1, FP, SCRATCH + 2);
	alu(as, BPF_AND, BPF_REG_1, htobe16(0xfff9));
	jump_if(as, BPF_JNE, BPF_REG_1, 0, LABEL_IPV6_ONLY);
	alu(as, BPF_MOV, BPF_REG_2, EXTENSION);
	jump(as, labels + EXT_NEXT);

	label(as, labels + EXT_AH);
	alu(as, BPF_ADD, BPF_REG_2, 2);
	alu(as, BPF_LSH, BPF_REG_2, 2);

	label(as, labels + EXT_NEXT);
	alu_reg(as, BPF_ADD, OFFSET, BPF_REG_2);
	load(as, BPF_B, PROTOCOL, FP, SCRATCH);
}

static void write_ipv6(struct assembler *as)
{
	label(as, LABEL_IPV6);
	read_frame(as, 0, IPV6, 40, LABEL_UNCLASSIFIED);
	load(as, BPF_B, BPF_REG_1, FP, IPV6);
	alu(as, BPF_RSH, BPF_REG_1, 4);
	jump_if(as, BPF_JNE, BPF_REG_1, 6, LABEL_UNCLASSIFIED);
	alu(as, BPF_ADD, OFFSET, 40);
	load(as, BPF_B, PROTOCOL, FP, IPV6 + 6);
	for (unsigned i = 0; i < NET_HASH_EXTENSIONS; i++)
		write_extension(as, i);
	jump_if(as, BPF_JEQ, PROTOCOL, IPPROTO_UDP, LABEL_IPV6_UDP);
	jump_if(as, BPF_JNE, PROTOCOL, IPPROTO_TCP, LABEL_IPV6_ONLY);

	label(as, LABEL_IPV6_TCP);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_TCPv6, LABEL_IPV6_ONLY);
	jump(as, LABEL_IPV6_PORTS);

	label(as, LABEL_IPV6_UDP);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_UDPv6, LABEL_IPV6_ONLY);

	label(as, LABEL_IPV6_PORTS);
	read_in_reach(as, INPUT + IPV6_ADDRESSES, PORTS, LABEL_IPV6_ONLY);
	alu(as, BPF_MOV, LENGTH, IPV6_ADDRESSES + PORTS);
	jump(as, LABEL_HASH);

	label(as, LABEL_IPV6_ONLY);
	jump_unless_enabled(as, VIRTIO_NET_RSS_HASH_TYPE_IPv6, LABEL_UNCLASSIFIED);
	alu(as, BPF_MOV, LENGTH, IPV6_ADDRESSES);
}

/*
 * Over LENGTH bytes. The jumps to where they stand anyway are for the verifier: where one arrives
 * it drops a path that is like another. Without CAP_PERFMON it follows two from each addition to a
 * pointer.
 */
static void write_hash(struct assembler *as)
{
	label(as, LABEL_HASH);
	alu(as, BPF_MOV, HASH, 0);
	alu_reg(as, BPF_MOV, BPF_REG_2, SETTINGS);
	alu(as, BPF_ADD, BPF_REG_2, FIELD(lookup) - FIELD(types));
	for (int i = 0; i < (int)NET_HASH_INPUT_MAX; i++) {
		if (i == IPV4_ADDRESSES || i == IPV4_ADDRESSES + PORTS || i == IPV6_ADDRESSES)
			jump_if(as, BPF_JEQ, LENGTH, i, LABEL_HASHED);
		emit(as, BPF_JMP | BPF_JA, 0, 0, 0, 0);
		load(as, BPF_B, BPF_REG_1, FP, INPUT + i);
		alu(as, BPF_LSH, BPF_REG_1, 2);
		alu_reg(as, BPF_ADD, BPF_REG_1, BPF_REG_2);
		load(as, BPF_W, BPF_REG_1, BPF_REG_1, 0);
		alu_reg(as, BPF_XOR, HASH, BPF_REG_1);
		alu(as, BPF_ADD, BPF_REG_2, sizeof(((struct steer_settings *)0)->lookup[0]));
	}

	label(as, LABEL_HASHED);
	load(as, BPF_W, BPF_REG_1, SETTINGS, FIELD(mask) - FIELD(types));
	alu_reg(as, BPF_AND, HASH, BPF_REG_1);
	/* What the verifier does not know of the mask. */
	alu(as, BPF_AND, HASH, NET_HASH_TABLE_MAX - 1);
	alu(as, BPF_LSH, HASH, 1);
	alu_reg(as, BPF_ADD, HASH, SETTINGS);
	load(as, BPF_H, BPF_REG_0, HASH, FIELD(table) - FIELD(types));
	emit(as, BPF_JMP | BPF_EXIT, 0, 0, 0, 0);
}

static void write_program(struct assembler *as, int map_fd)
{
	write_start(as, map_fd);
	write_ethernet(as);
	write_ipv4(as);
	write_ipv6(as);
	write_hash(as);
	link_jumps(as);
}

/* ---- system calls ---- */

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
	long n = syscall(SYS_bpf, command, attr, sizeof(*attr));

	return n < 0 ? -errno : (int)n;
}

static int create_map(void)
{
	union bpf_attr attr;

	memset(&attr, 0, sizeof(attr));
	attr.map_type = BPF_MAP_TYPE_ARRAY;
	attr.key_size = sizeof(uint32_t);
	attr.value_size = sizeof(struct steer_map);
	attr.max_entries = 1;
	attr.map_flags = BPF_F_MMAPABLE;
	memcpy(attr.map_name, "whelp_rss", sizeof("whelp_rss"));
	return bpf(BPF_MAP_CREATE, &attr);
}

static int load_program(int map_fd)
{
	struct assembler *as = calloc(1, sizeof(*as));
	union bpf_attr attr;
	int fd;

	if (!as)
		return -ENOMEM;
	write_program(as, map_fd);
	memset(&attr, 0, sizeof(attr));
	attr.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attr.insns = (uintptr_t)as->code;
	attr.insn_cnt = as->count;
	attr.license = (uintptr_t)"GPL";
	memcpy(attr.prog_name, "whelp_rss", sizeof("whelp_rss"));
	fd = bpf(BPF_PROG_LOAD, &attr);
	free(as);
	return fd;
}

static int setup(struct steer *steer)
{
	void *map;

	steer->map_fd = create_map();
	if (steer->map_fd < 0)
		return steer->map_fd;
	map = mmap(NULL, sizeof(struct steer_map), PROT_READ | PROT_WRITE, MAP_SHARED,
		   steer->map_fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	steer->map = map;
	steer->program_fd = load_program(steer->map_fd);
	return steer->program_fd < 0 ? steer->program_fd : 0;
}

int steer_open(struct steer **steer)
{
	struct steer *new = calloc(1, sizeof(*new));
	int err;

	*steer = NULL;
	if (!new)
		return -ENOMEM;
	new->map_fd = new->program_fd = -1;
	err = setup(new);
	if (err) {
		steer_close(new);
		return err;
	}
	*steer = new;
	return 0;
}

void steer_close(struct steer *steer)
{
	if (!steer)
		return;
	if (steer->program_fd >= 0)
		close(steer->program_fd);
	if (steer->map)
		munmap(steer->map, sizeof(*steer->map));
	if (steer->map_fd >= 0)
		close(steer->map_fd);
	free(steer);
}

int steer_fd(const struct steer *steer)
{
	return steer->program_fd;
}

int steer_set(struct steer *steer, const struct net_rss *rss)
{
	uint32_t next = !steer->map->active;
	struct steer_settings *settings = &steer->map->slots[next].settings;

	if (rss->types & (VIRTIO_NET_RSS_HASH_TYPE_IP_EX | VIRTIO_NET_RSS_HASH_TYPE_TCP_EX |
			  VIRTIO_NET_RSS_HASH_TYPE_UDP_EX))
		return -EOPNOTSUPP;
	for (unsigned place = 0; place < NET_HASH_INPUT_MAX; place++)
		for (unsigned value = 0; value < 256; value++) {
			uint8_t byte = (uint8_t)value;

			settings->lookup[place][value] =
				net_hash_toeplitz(rss->key + place, &byte, 1);
		}
	settings->types = rss->types;
	settings->mask = rss->table_mask;
	settings->unclassified = rss->unclassified;
	memcpy(settings->table, rss->table, sizeof(settings->table));
	/* Pairs with the program's read, on which the address of all else it reads depends. */
	__atomic_store_n(&steer->map->active, next, __ATOMIC_RELEASE);
	return 0;
}
