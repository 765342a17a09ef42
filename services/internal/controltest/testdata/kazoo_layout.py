"""What the original's agent_controller writes into a ZooKeeper ensemble: kazoo_layout.py <host:port> <export_base>.

Declares, publishes and takes back sub-graphs, a step for each line of its input, and prints
a JSON object once it has written.
"""

import json
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

zk = KazooClient(hosts=sys.argv[1], timeout=60)
zk.start(timeout=120)


def declare(sub, policy):
    config = {"model_base_path": sys.argv[2] + "/" + sub, "version_policy": policy}
    zk.create("/test/saved_models/movies/" + sub, json.dumps(config).encode(), makepath=True)


def publish(sub):
    zk.ensure_path("/test/layouts/l1/movies:" + sub)


def unpublish(sub):
    zk.delete("/test/layouts/l1/movies:" + sub)


def bindings():
    try:
        return sorted(name.split(":")[0] for name in zk.get_children("/test/binding/movies"))
    except NoNodeError:
        return []


for line in sys.stdin:
    command, *args = line.split()
    print(json.dumps({command: globals()[command](*args)}), flush=True)
