"""The worker with all ranks on the first CUDA device.

NCCL refuses two ranks of one machine on one device, so each says that it is a machine of its own; they then talk over
loopback sockets. The device gives each a slice of its time in turn: results are right, and nothing is fast.
"""

import os

RANK = os.environ["RANK"]
os.environ.update(
    LOCAL_RANK="0",
    NCCL_HOSTID=f"dtbench{RANK}",
    NCCL_SOCKET_IFNAME="lo",
    NCCL_IB_DISABLE="1",
    NCCL_MNNVL_ENABLE="0",
)

from dtbench.worker.__main__ import main

main()
