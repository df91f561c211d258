/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The CPUs that this process may use: affinity, and the quota of its control group. */
#ifndef TORPOR_OS_CPUS_H
#define TORPOR_OS_CPUS_H

/* At least 1.  A quota of 1.5 CPUs counts as 2: the second worker fills what is left. */
unsigned int os_cpus_allowed(void);

/*
 * The quota found below a cgroup mount (v1 and v2 layouts are known) for a process whose
 * /proc/PID/cgroup reads `cgroup_text`, in whole CPUs rounded up; 0: none.  For tests.
 */
unsigned int os_cpus_quota(const char *cgroup_text, const char *mount);

#endif
