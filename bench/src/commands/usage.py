"""Runs a command and prints the resources that it used, as one line of JSON.

usage.py [--private] PROGRAM ARGUMENT...

`seconds` is the wall time of the command, and `cpu` the processor time of the command and its children in seconds.
`peak_kib` is the largest resident set of one of these processes, including pages of the program file. With --private,
`private_kib` is the largest amount of private memory of the command. The script reads it every 2 ms, which disturbs the
times.
"""

import json
import os
import shutil
import sys
import time


def private_kib(process):
    try:
        with open(f"/proc/{process}/status") as status:
            lines = dict(line.split(":", 1) for line in status)
        return sum(int(lines[name].split()[0]) for name in ("RssAnon", "RssShmem"))
    except (OSError, KeyError):
        return 0


def main():
    arguments = sys.argv[1:]
    measures_private = arguments[0] == "--private"
    if measures_private:
        arguments = arguments[1:]
    program = shutil.which(arguments[0])
    null_streams = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    begin = time.perf_counter()
    child = os.posix_spawn(program, arguments, os.environ, file_actions=null_streams)
    private, done = 0, 0
    while measures_private and not done:
        private = max(private, private_kib(child))
        time.sleep(0.002)
        done, status, usage = os.wait4(child, os.WNOHANG)
    if not measures_private:
        _, status, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - begin
    print(
        json.dumps(
            {
                "status": os.waitstatus_to_exitcode(status),
                "seconds": seconds,
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak_kib": usage.ru_maxrss,
                "private_kib": private,
            }
        )
    )


main()
