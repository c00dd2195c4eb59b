"""A RabbitMQ server of the comparison's own, with its own port mapper, which Erlang would leave running."""

from __future__ import annotations

from pathlib import Path

import pika

from .server import Server, find_program, free_port

CONFIGURATION = """
listeners.tcp.1 = 127.0.0.1:{port}
log.console.level = error
"""


class RabbitmqServer:
    def __init__(self, folder: Path) -> None:
        program = find_program("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
        mapper_port, self.port = free_port(), free_port()
        (folder / "rabbitmq.conf").write_text(CONFIGURATION.format(port=self.port))
        (folder / "plugins").write_text("[].")
        environment = self._environment(folder, mapper_port)
        self._mapper = Server(
            [find_program("epmd"), "-port", str(mapper_port), "-address", "127.0.0.1"], folder=folder
        )
        self._server = Server([program], folder=folder, environment=environment)
        try:
            self._server.wait_until(lambda: connect(self.port).close())
        except BaseException:
            self._mapper.stop()
            raise

    def _environment(self, folder: Path, mapper_port: int) -> dict[str, str]:
        return {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def stop(self) -> None:
        self._server.stop()
        self._mapper.stop()


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)


def connect(port: int) -> pika.BlockingConnection:
    return pika.BlockingConnection(parameters(port))
