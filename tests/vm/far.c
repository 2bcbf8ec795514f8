/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The guest's part of tests that look at bytes.
 *
 * far echo PORT: gives back what it gets by TCP and UDP, on IPv4 and IPv6.
 * far relay ADDRESS PORT ADDRESS PORT: passes on what comes by TCP from the first, to the second
 * and to stdout.
 * far segment ADDRESS PORT SIZE LEN COUNT: sends COUNT times LEN bytes by UDP, with UDP_SEGMENT of
 * SIZE.
 *
 * Byte i of a segmented send number n is (7 * n + 13 * i + i / 256) mod 256.
 */
#include <err.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static char buf[1 << 17];

static int connect_to(int type, const char *address, const char *port)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = type };
	struct addrinfo *to;
	int fd;

	if (getaddrinfo(address, port, &hints, &to))
		errx(2, "%s %s: wrong usage", address, port);
	fd = socket(to->ai_family, type, 0);
	if (fd < 0 || connect(fd, to->ai_addr, to->ai_addrlen))
		err(1, "%s %s", address, port);
	freeaddrinfo(to);
	return fd;
}

static void send_all(int fd, const char *data, ssize_t len)
{
	while (len > 0) {
		ssize_t n = write(fd, data, (size_t)len);

		if (n < 0)
			err(1, "write");
		data += n;
		len -= n;
	}
}

static int listen_on(int type, uint16_t port)
{
	/* Of both families: IPv6 sockets take IPv4 unless told otherwise. */
	const struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	int fd = socket(AF_INET6, type, 0);
	int one = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(fd, (const struct sockaddr *)&any, sizeof(any)) ||
	    (type == SOCK_STREAM && listen(fd, 64)))
		err(1, "port %u", port);
	return fd;
}

static void echo_datagrams(int fd)
{
	for (;;) {
		struct sockaddr_in6 from;
		socklen_t size = sizeof(from);
		ssize_t n = recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&from, &size);

		if (n < 0 || sendto(fd, buf, (size_t)n, 0, (struct sockaddr *)&from, size) != n)
			err(1, "datagram");
	}
}

static void echo_stream(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		err(1, "TCP_NODELAY");
	for (;;) {
		ssize_t n = read(fd, buf, sizeof(buf));

		if (n <= 0)
			exit(n < 0);
		send_all(fd, buf, n);
	}
}

static int echo(uint16_t port)
{
	int datagrams = listen_on(SOCK_DGRAM, port);
	int streams = listen_on(SOCK_STREAM, port);

	/* The caller goes on when both are there. */
	if (daemon(0, 0))
		err(1, "daemon");
	signal(SIGCHLD, SIG_IGN);
	if (!fork())
		echo_datagrams(datagrams);
	for (;;) {
		int fd = accept(streams, NULL, NULL);

		if (fd < 0)
			err(1, "accept");
		if (!fork())
			echo_stream(fd);
		close(fd);
	}
}

static int relay(char **ends)
{
	int from = connect_to(SOCK_STREAM, ends[0], ends[1]);
	int to = connect_to(SOCK_STREAM, ends[2], ends[3]);
	ssize_t n;

	while ((n = read(from, buf, sizeof(buf))) > 0) {
		send_all(to, buf, n);
		send_all(STDOUT_FILENO, buf, n);
	}
	return n < 0;
}

static int segment(const char *address, const char *port, int size, size_t len, unsigned count)
{
	int fd = connect_to(SOCK_DGRAM, address, port);

	if (len > sizeof(buf) || setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)))
		err(1, "segments of %d bytes", size);
	for (unsigned n = 0; n < count; n++) {
		for (size_t i = 0; i < len; i++)
			buf[i] = (char)(7 * n + 13 * i + i / 256);
		if (send(fd, buf, len, 0) != (ssize_t)len)
			err(1, "send");
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "echo"))
		return echo((uint16_t)atoi(argv[2]));
	if (argc == 6 && !strcmp(argv[1], "relay"))
		return relay(&argv[2]);
	if (argc == 7 && !strcmp(argv[1], "segment"))
		return segment(argv[2], argv[3], atoi(argv[4]), (size_t)atol(argv[5]),
			       (unsigned)atoi(argv[6]));
	fprintf(stderr, "far: wrong usage\n");
	return 2;
}
