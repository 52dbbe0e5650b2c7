"""Build the BPF programs for `bwrap --seccomp` that refuse system calls in a hybrid sandbox or on a desktop.

Sockets are limited to four families (`SOCKETS`), since a network namespace does not contain every family: for example,
AF_VSOCK connects any namespace to the host of a virtual machine. A desktop gets no other limit (`sockets`), because its
X server and its programs need some of the other calls. A hybrid sandbox refuses more (`program`). An unprivileged
namespace already drops most rights. The filter removes other rights that no task needs: other processes' memory,
further namespaces and mounts, memory that no limit counts (memfd, System V), and parts of the kernel with a history of
escapes (io_uring, bpf, perf, userfaultfd, keys). A refused call answers EPERM; `clone3`, whose flags a filter cannot
see, answers ENOSYS, and the C library falls back to `clone`.

Layouts are from linux/seccomp.h and linux/filter.h, and numbers from the kernel's tables of system calls.
"""

import errno
import platform
import struct
from collections.abc import Mapping

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""AUDIT_ARCH of each machine, and its column in the tables below."""
_CLONE, _CLONE3 = (56, 220), 435
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
SOCKETS = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16}
"""Families of sockets that may be made; other families answer EAFNOSUPPORT, as on a kernel without them."""
REFUSED: dict[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "mbind": (237, 235),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "personality": (135, 92),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "set_mempolicy": (238, 237),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""System calls by name, with their numbers on each of `_MACHINES`."""


def program(machine: str = "") -> bytes:
    """Builds a hybrid sandbox's filter for a machine type (this machine's by default); empty for a type without known
    numbers."""
    return _filter(machine, REFUSED)


def sockets(machine: str = "") -> bytes:
    """Builds a desktop's filter, which only limits families of sockets."""
    return _filter(machine, {})


def _filter(machine: str, refused: Mapping[str, tuple[int, int]]) -> bytes:
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    audit, column = known
    refuse = _ERRNO | errno.EPERM
    steps = [
        _step(_LOAD, _ARCH_AT),
        _step(_EQUAL, audit, 1, 0),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER_AT),
        _step(_AT_LEAST, _X32, 0, 1),
        _step(_RETURN, refuse),
        _step(_EQUAL, _SOCKET[column], 1, 0),
        _step(_EQUAL, _SOCKETPAIR[column], 0, len(SOCKETS) + 3),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        *(_step(_EQUAL, family, len(SOCKETS) - at, 0) for at, family in enumerate(SOCKETS.values())),
        _step(_RETURN, _ERRNO | errno.EAFNOSUPPORT),
        _step(_RETURN, _ALLOW),
    ]
    if not refused:
        return b"".join([*steps, _step(_RETURN, _ALLOW)])
    for numbers in refused.values():
        steps += [_step(_EQUAL, numbers[column], 0, 1), _step(_RETURN, refuse)]
    steps += [
        _step(_EQUAL, _CLONE3, 0, 1),
        _step(_RETURN, _ERRNO | errno.ENOSYS),
        _step(_EQUAL, _CLONE[column], 0, 3),
        _step(_LOAD, _FIRST_ARGUMENT_AT),
        _step(_ANY_BIT, _NAMESPACES, 0, 1),
        _step(_RETURN, refuse),
        _step(_RETURN, _ALLOW),
    ]
    return b"".join(steps)


def _step(code: int, value: int, then: int = 0, other: int = 0) -> bytes:
    return struct.pack("=HBBI", code, then, other, value)
