// Package crash holds the tests that run the built program and hurt it: kill -9
// under load, processes that are stopped past their lease and wake up again,
// SIGTERM, and the cases of other products replayed on the binary. It has no
// code of its own.
//
// Two ledgers are kept outside the program: what producers saw acknowledged, and
// what receivers and commands saw of each idempotency key. At the end the
// ledgers are compared with the database, which is read only through the
// program's own doors. A suite counts the faults that it made and fails when
// none of them hit anything.
//
// The short form takes about a minute. These variables make it longer:
//
//	FENCEPOST_KILLS    kills of the kill loop (default 100)
//	FENCEPOST_ZOMBIES  rounds of stopping a process past its lease (default 1)
//	FENCEPOST_STOPS    graceful stops under load (default 10)
//	FENCEPOST_STEPS    kills at each step (default 3)
//	FENCEPOST_KEYS     events that 32 submitters send at once (default 40)
//	FENCEPOST_COMMANDS commands beside three processes on one file (default 40)
//	FENCEPOST_SEED     seed of every random choice (default: printed by each test)
//
// Tests with the build tag faults also make system calls fail, by strace, which
// must be installed; they fail when it is not, and where they need root and are run by
// another user:
//
//	FENCEPOST_SYNCS    syncs made to fail (default 10)
//	FENCEPOST_ERRORS   other calls made to fail (default 34)
//	FENCEPOST_WRITES   kills in the middle of commits (default 40)
//	FENCEPOST_SHORT    sizes at which writes are cut (default 6)
//
// Tests with the build tag power cut the power of a virtual machine in which the
// program works: they need qemu, mke2fs and a kernel, which make power gets.
//
//	FENCEPOST_KERNEL       directory of the kernel and its drivers
//	FENCEPOST_CUTS         power cuts with durability full (default 5)
//	FENCEPOST_NORMAL_CUTS  power cuts with durability normal (default 4)
//
// Those with the build tag soak let the program work for long:
//
//	FENCEPOST_SOAK_S  seconds (default 300)
//
// With the same seed the choices are the same; when a process dies between two
// of its instructions is up to the machine. Long forms need -timeout.
package crash
