"""Runs commands and copies a file with the official Python client of Kubernetes.

Arguments: kubeconfig, namespace, pod, container, directory of the container.
"""

import sys

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream

kubeconfig, namespace, pod, container, directory = sys.argv[1:]
config.load_kube_config(kubeconfig)
core = client.CoreV1Api()

found = core.read_namespaced_pod(pod, namespace)
assert found.status.phase == "Running", found.status
assert [spec.name for spec in found.spec.containers] == [container], found.spec

try:
    core.read_namespaced_pod("none", namespace)
    raise AssertionError("a pod that is not there was found")
except ApiException as error:
    assert error.status == 404, error


def run(*command, stdin=None):
    """Output, errors and exit status of a command."""
    socket = stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        namespace,
        container=container,
        command=list(command),
        stdin=stdin is not None,
        stdout=True,
        stderr=True,
        tty=False,
        _preload_content=False,
    )
    if stdin is not None:
        socket.write_stdin(stdin)
    socket.run_forever(timeout=30)
    return socket.read_stdout(), socket.read_stderr(), socket.returncode


assert run("printf", "%s|", "a b", "c&d=ä") == ("a b|c&d=ä|", "", 0)
assert run("sh", "-c", "echo out; echo wrong >&2; exit 3") == ("out\n", "wrong\n", 3)
text = "line\n" * 20000
path = directory + "/from-python"
assert run("sh", "-c", 'head -c "$1" >"$2"', "sh", str(len(text)), path, stdin=text)[2] == 0
assert run("cat", path)[0] == text
try:
    run("no-such-program")
except Exception as error:
    assert "executable file not found" in str(error), error
print("done")
