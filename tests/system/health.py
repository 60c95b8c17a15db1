# SPDX-License-Identifier: Apache-2.0
"""gRPC's health service, with its own client."""

import queue
import threading

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

SERVING, NOT_SERVING, SERVICE_UNKNOWN = (health_pb2.HealthCheckResponse.ServingStatus.Value(name)
                                         for name in ("SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"))
WITHIN_S = 60


class Watch:
    """A call of Watch: next() gives its next state, or the status with which it has ended."""

    def __init__(self, channel, service):
        self.seen = queue.Queue()
        self.call = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(service=service))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for response in self.call:
                self.seen.put(response.status)
        except grpc.RpcError as error:
            self.seen.put(error.code())

    def next(self):
        return self.seen.get(timeout=WITHIN_S)
