/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A machine has two parts. The host's part (files, taps, terminal, socket, signals) is opened once
 * and lasts until the end. The guest's part (VM, memory, CPUs, devices) is built on it, and a reset
 * is to take it down and build it anew: whatever state a device or KVM has, none of it can survive.
 *
 * The main thread sleeps in its loop on signals and on what vCPU threads report. The first report
 * decides; later ones belong to a guest that is about to be stopped.
 *
 * Order of the end: vCPUs, devices, back ends, buses, memory.
 */
#include "vmm/machine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "devices/net/tap.h"
#include "vmm/clock.h"
#include "vmm/console.h"
#include "vmm/log.h"
#include "vmm/loop.h"
#include "vmm/machine_guest.h"
#include "vmm/machine_stats.h"
#include "vmm/serial_socket.h"
#include "vmm/stat_server.h"
#include "vmm/util.h"
#include "vmm/x86/boot.h"

struct machine {
	const struct run_config *config;
	char name[64];
	int status; /* the exit status, once the loop has stopped */
	char why[96]; /* and the line that goes with it */
	bool drain; /* let the console's reader have everything */

	struct loop loop;
	struct loop_source signals; /* signalfd: those that whelp goes on after */
	struct loop_source ends;    /* signalfd: those that end it */
	struct loop_source events;
	atomic_int event;
	struct boot_files files;
	struct console console;
	struct serial_socket socket;
	struct chardev no_chardev;
	struct guest_host host;
	struct guest guest;
	struct machine_stats stats;
	struct stat_server stat_server;
};

/* ---- what vCPUs report ---- */

static void report(void *ctx, enum guest_event event)
{
	struct machine *m = ctx;
	int none = GUEST_NOTHING;
	uint64_t one = 1;
	ssize_t written;

	if (!atomic_compare_exchange_strong(&m->event, &none, event))
		return;
	written = write(m->events.fd, &one, sizeof(one));
	(void)written;
}

static int check_memory(const struct run_config *config)
{
	uint64_t host = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);

	if (config->memory <= host)
		return 0;
	log_error("--memory %lluM is more than this host's %lluM: ask for less",
		  (unsigned long long)(config->memory >> 20), (unsigned long long)(host >> 20));
	return -ENOMEM;
}

/* ---- the end, and resets ---- */

static void finish(struct machine *m, int status, bool drain, const char *why)
{
	m->status = status;
	m->drain = drain;
	snprintf(m->why, sizeof(m->why), "%s", why);
	loop_stop(&m->loop);
}

static void write_stats(const struct machine *m)
{
	if (m->config->stats)
		machine_stats_write(&m->stats, m->config->stats);
}

static json_t *snapshot(void *ctx)
{
	const struct machine *m = ctx;

	return machine_stats_json(&m->stats);
}

/* Called for each life of the guest. */
static int start_guest(struct machine *m)
{
	m->stats.boots++;
	return guest_start(&m->guest);
}

static void reset(struct machine *m)
{
	guest_fini(&m->guest);
	atomic_store(&m->event, GUEST_NOTHING);
	if (guest_init(&m->guest, &m->host) || start_guest(m))
		finish(m, EXIT_SETUP, true, "could not be set up again after a reset");
}

static void event_ready(struct loop_source *source, uint32_t events)
{
	struct machine *m = container_of(source, struct machine, events);
	uint64_t count;
	ssize_t got = read(source->fd, &count, sizeof(count));

	(void)events;
	(void)got;
	switch ((enum guest_event)atomic_load(&m->event)) {
	case GUEST_NOTHING:
		break;
	case GUEST_OFF:
		finish(m, EXIT_POWERED_OFF, true, "the guest powered off");
		break;
	case GUEST_RESET:
		if (m->config->no_reboot)
			finish(m, EXIT_REBOOT, true,
			       "the guest rebooted, and --no-reboot was given");
		else
			reset(m);
		break;
	case GUEST_PANIC:
		finish(m, EXIT_PANIC, true, "the guest's kernel panicked");
		break;
	case GUEST_TRIPLE_FAULT:
		finish(m, EXIT_TRIPLE_FAULT, true, "the guest's CPU shut down: a triple fault");
		break;
	case GUEST_INTERNAL_ERROR:
		finish(m, EXIT_INTERNAL_ERROR, true, "KVM could not go on");
		break;
	}
}

static void quit(void *ctx)
{
	finish(ctx, EXIT_QUIT, true, "quit by Ctrl-A x");
}

static void stop_for_a_while(struct machine *m)
{
	console_suspend(&m->console);
	raise(SIGSTOP);
	console_resume(&m->console);
}

static void end_ready(struct loop_source *source, uint32_t events)
{
	struct machine *m = container_of(source, struct machine, ends);
	struct signalfd_siginfo info;
	char why[64];

	(void)events;
	if (read(source->fd, &info, sizeof(info)) != sizeof(info))
		return;
	snprintf(why, sizeof(why), "ended by SIG%s", sigabbrev_np((int)info.ssi_signo));
	finish(m, EXIT_SIGNAL + (int)info.ssi_signo, false, why);
}

static void signal_ready(struct loop_source *source, uint32_t events)
{
	struct machine *m = container_of(source, struct machine, signals);
	struct signalfd_siginfo info;

	(void)events;
	if (read(source->fd, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGCONT:
		console_resume(&m->console);
		/* While whelp was stopped, switches may have forgotten where the guest is. */
		guest_announce(&m->guest);
		break;
	case SIGTSTP:
		stop_for_a_while(m);
		break;
	case SIGUSR2:
		write_stats(m);
		break;
	}
}

/* ---- the host's part ---- */

/*
 * Blocks `count` signals and opens a signalfd for them, before the first thread is made: all
 * inherit it.
 */
static int take_signals(struct loop_source *source, const int *signals, unsigned count)
{
	sigset_t set;

	sigemptyset(&set);
	for (unsigned i = 0; i < count; i++)
		sigaddset(&set, signals[i]);
	sigprocmask(SIG_BLOCK, &set, NULL);
	source->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return source->fd < 0 ? -errno : 0;
}

static int open_signals(struct machine *m)
{
	static const int ends[] = { SIGTERM, SIGINT, SIGHUP };
	static const int others[] = { SIGCONT, SIGTSTP, SIGUSR2 };
	int err = take_signals(&m->ends, ends, ARRAY_SIZE(ends));

	if (!err)
		err = take_signals(&m->signals, others, ARRAY_SIZE(others));
	return err ? err : vcpu_install_kick();
}

static int open_loop(struct machine *m)
{
	int err = loop_init(&m->loop);

	m->ends.ready = end_ready;
	m->signals.ready = signal_ready;
	m->events.ready = event_ready;
	if (!err)
		err = open_signals(m);
	if (!err) {
		m->events.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
		err = m->events.fd < 0 ? -errno : 0;
	}
	if (!err)
		err = loop_add(&m->loop, &m->ends, EPOLLIN);
	if (!err)
		err = loop_add(&m->loop, &m->signals, EPOLLIN);
	if (!err)
		err = loop_add(&m->loop, &m->events, EPOLLIN);
	if (err)
		log_error("cannot wait for signals: %s", strerror(-err));
	return err;
}

/* Before anything is opened, which would get the number of a file that was not passed. */
static int claim_fds(const struct net_config *net)
{
	for (unsigned i = 0; i < net->fd_count; i++) {
		if (!fcntl(net->fds[i], F_SETFD, FD_CLOEXEC))
			continue;
		log_error("--net fd=%d: no file of that number is open: whoever starts whelp has "
			  "to pass it on, without close-on-exec", net->fds[i]);
		return -EBADF;
	}
	return 0;
}

static int claim_all_fds(const struct run_config *config)
{
	int err = 0;

	for (unsigned i = 0; !err && i < config->net_count; i++)
		err = claim_fds(&config->nets[i]);
	return err;
}

/* Taps that were passed may be the same in spite of their numbers. */
static int check_same(const struct machine *m, unsigned index)
{
	for (unsigned i = 0; i < index; i++) {
		if (!tap_is_same(m->host.backends[i], m->host.backends[index]))
			continue;
		log_error("--net fd=%d: tap %s is that of an earlier --net; each NIC needs its own",
			  m->config->nets[index].fds[0], m->host.backends[index]->name);
		return -EBUSY;
	}
	return 0;
}

static int open_backend(struct machine *m, unsigned index)
{
	const struct net_config *config = &m->config->nets[index];
	struct net_backend **backend = &m->host.backends[index];

	if (config->fd_count)
		*backend = tap_open_fds(config->fds, config->fd_count, config->mtu);
	else
		*backend = tap_open(config->tap, config->queues, config->mtu);
	if (!*backend)
		return -ENODEV;
	return config->fd_count ? check_same(m, index) : 0;
}

static int open_backends(struct machine *m)
{
	int err = 0;

	for (unsigned i = 0; !err && i < m->config->net_count; i++)
		err = open_backend(m, i);
	return err;
}

static void set_name(struct machine *m)
{
	char title[16];

	if (m->config->name)
		snprintf(m->name, sizeof(m->name), "%s", m->config->name);
	else
		snprintf(m->name, sizeof(m->name), "whelp-%ld", (long)getpid());
	/* What ps and pgrep show. */
	snprintf(title, sizeof(title), "%.15s", m->name);
	prctl(PR_SET_NAME, title);
}

static int machine_init(struct machine *m, const struct run_config *config)
{
	int err;

	m->config = config;
	m->status = EXIT_SETUP;
	m->ends.fd = m->signals.fd = m->events.fd = -1;
	m->loop.epoll_fd = m->loop.stop_fd = -1;
	m->files.kernel_fd = m->files.initrd_fd = -1;
	set_name(m);
	console_init(&m->console);
	serial_socket_init(&m->socket);
	chardev_none_init(&m->no_chardev);
	stat_server_init(&m->stat_server);
	m->stats = (struct machine_stats){
		.name = m->name,
		.started = clock_seconds(),
		.guest = &m->guest,
	};
	m->host = (struct guest_host){
		.config = config,
		.files = &m->files,
		.com1 = &m->console.chardev,
		.com2 = config->serial ? &m->socket.chardev : &m->no_chardev,
		.event = report,
		.ctx = m,
	};
	err = claim_all_fds(config);
	if (!err)
		err = check_memory(config);
	if (!err)
		err = boot_open(&m->files, config->kernel, config->initrd, config->cmdline);
	if (!err)
		err = open_loop(m);
	if (!err)
		err = stat_server_open(&m->stat_server, &m->loop, m->name, snapshot, m);
	if (!err)
		err = open_backends(m);
	if (!err && config->serial)
		err = serial_socket_open(&m->socket, &m->loop, config->serial);
	if (!err)
		err = guest_init(&m->guest, &m->host);
	/* The terminal last: until here every failure leaves it untouched. */
	if (!err)
		err = console_start(&m->console, &m->loop, STDIN_FILENO, STDOUT_FILENO, quit, m);
	return err ? err : start_guest(m);
}

static void close_source(const struct loop_source *source)
{
	if (source->fd >= 0)
		close(source->fd);
}

static void machine_fini(struct machine *m)
{
	stat_server_close(&m->stat_server);
	guest_fini(&m->guest);
	console_stop(&m->console, m->drain, m->ends.fd);
	serial_socket_close(&m->socket);
	console_fini(&m->console);
	serial_socket_fini(&m->socket);
	chardev_fini(&m->no_chardev);
	for (unsigned i = 0; i < ARRAY_SIZE(m->host.backends); i++)
		if (m->host.backends[i])
			m->host.backends[i]->ops->close(m->host.backends[i]);
	boot_close(&m->files);
	close_source(&m->ends);
	close_source(&m->signals);
	close_source(&m->events);
	loop_fini(&m->loop);
}

int machine_run(const struct run_config *config)
{
	struct machine *m = calloc(1, sizeof(*m));
	int status;

	if (!m) {
		log_error("out of memory");
		return EXIT_SETUP;
	}
	if (!machine_init(m, config)) {
		loop_run(&m->loop);
		write_stats(m);
	}
	machine_fini(m);
	if (m->why[0])
		log_info("%s: %s", m->name, m->why);
	status = m->status;
	free(m);
	return status;
}
