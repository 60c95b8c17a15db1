// SPDX-License-Identifier: Apache-2.0

import com.google.protobuf.ByteString;
import grpc.health.v1.HealthGrpc;
import grpc.health.v1.HealthOuterClass.HealthCheckRequest;
import grpc.health.v1.HealthOuterClass.HealthCheckResponse;
import inference.GRPCInferenceServiceGrpc;
import inference.GRPCInferenceServiceGrpc.GRPCInferenceServiceBlockingStub;
import inference.Inference.InferTensorContents;
import inference.Inference.ModelConfigRequest;
import inference.Inference.ModelInferRequest;
import inference.Inference.ModelInferRequest.InferInputTensor;
import inference.Inference.ModelInferResponse;
import inference.Inference.ModelMetadataRequest;
import inference.Inference.ModelStreamInferResponse;
import inference.Inference.ServerLiveRequest;
import inference.Inference.ServerReadyRequest;
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.StreamObserver;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A client generated from our .proto files: {@code Client ADDRESS SCENARIO} ends with 0 when the server has answered as
 * ../README.md says. */
public final class Client {
    private static final int WITHIN_S = 60;
    private static final Object END = new Object();

    private final ManagedChannel channel;

    private Client(ManagedChannel channel) {
        this.channel = channel;
    }

    private GRPCInferenceServiceBlockingStub triton() {
        return GRPCInferenceServiceGrpc.newBlockingStub(channel).withDeadlineAfter(WITHIN_S, TimeUnit.SECONDS);
    }

    private static void check(boolean fine, String what) {
        if (!fine) {
            throw new AssertionError(what);
        }
    }

    private static ByteString raw(float[] values) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asFloatBuffer().put(values);
        return ByteString.copyFrom(bytes);
    }

    private static ByteString raw(int[] values) {
        ByteBuffer bytes = ByteBuffer.allocate(4 * values.length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.asIntBuffer().put(values);
        return ByteString.copyFrom(bytes);
    }

    private static float[] numbers(int n) {
        float[] values = new float[n];
        for (int i = 0; i < n; i++) {
            values[i] = i % 100;
        }
        return values;
    }

    private static InferInputTensor.Builder tensor(String name, String datatype, int n) {
        return InferInputTensor.newBuilder().setName(name).setDatatype(datatype).addShape(n);
    }

    private static ModelInferRequest.Builder echo(float[] values) {
        return ModelInferRequest.newBuilder().setModelName("echo").setId("one")
            .addInputs(tensor("INPUT0", "FP32", values.length)).addRawInputContents(raw(values));
    }

    private static void checkEcho(ModelInferResponse answer, float[] values) {
        check(answer.getId().equals("one"), "another answer");
        check(answer.getRawOutputContents(0).equals(raw(values)), "other values");
    }

    /** Asks for an answer of each of these delays. */
    private static ModelInferRequest repeat(int... delays) {
        int n = delays.length;
        int[] values = new int[n];
        for (int i = 0; i < n; i++) {
            values[i] = i;
        }
        return ModelInferRequest.newBuilder().setModelName("repeat").addInputs(tensor("IN", "INT32", n))
            .addInputs(tensor("DELAY", "UINT32", n)).addInputs(tensor("WAIT", "UINT32", 1))
            .addRawInputContents(raw(values)).addRawInputContents(raw(delays)).addRawInputContents(raw(new int[1])).build();
    }

    private static void checkCode(ModelInferRequest request, GRPCInferenceServiceBlockingStub triton, Status.Code code,
                                  String text) {
        try {
            triton.modelInfer(request);
        } catch (StatusRuntimeException error) {
            check(error.getStatus().getCode() == code, error + " instead of " + code);
            check(text == null || text.equals(error.getStatus().getDescription()), "another text: " + error);
            return;
        }
        throw new AssertionError("an answer instead of " + code);
    }

    /** The answers of a stream, an error, or END. */
    private static final class Answers implements StreamObserver<ModelStreamInferResponse> {
        private final LinkedBlockingQueue<Object> queue = new LinkedBlockingQueue<>();

        @Override
        public void onNext(ModelStreamInferResponse answer) {
            queue.add(answer);
        }

        @Override
        public void onError(Throwable error) {
            queue.add(Status.fromThrowable(error).getCode());
        }

        @Override
        public void onCompleted() {
            queue.add(END);
        }

        Object take() throws InterruptedException {
            Object taken = queue.poll(WITHIN_S, TimeUnit.SECONDS);
            check(taken != null, "nothing has come");
            return taken;
        }

        int takeNumber() throws InterruptedException {
            ModelStreamInferResponse answer = (ModelStreamInferResponse) take();
            check(answer.getErrorMessage().isEmpty(), answer.getErrorMessage());
            return answer.getInferResponse().getRawOutputContents(0).asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN)
                .getInt();
        }
    }

    private void stream() throws InterruptedException {
        Answers answers = new Answers();
        StreamObserver<ModelInferRequest> requests = GRPCInferenceServiceGrpc.newStub(channel).modelStreamInfer(answers);
        for (int i = 0; i < 3; i++) {
            requests.onNext(repeat(0, 0, 0, 0));
            for (int k = 0; k < 4; k++) {
                check(answers.takeNumber() == k, "another order");
            }
        }
        requests.onCompleted();
        check(answers.take() == END, "no end");
    }

    private void cancel() throws InterruptedException {
        Answers answers = new Answers();
        Context.CancellableContext context = Context.current().withCancellation();
        context.run(() -> GRPCInferenceServiceGrpc.newStub(channel).modelStreamInfer(answers).onNext(repeat(0, 60000)));
        check(answers.takeNumber() == 0, "another answer");
        context.cancel(null);
        check(answers.take() == Status.Code.CANCELLED, "not cancelled");
        checkEcho(triton().modelInfer(echo(numbers(1)).build()), numbers(1));
    }

    private void run(String scenario) throws InterruptedException {
        switch (scenario) {
            case "health":
                check(triton().serverLive(ServerLiveRequest.getDefaultInstance()).getLive(), "not live");
                check(triton().serverReady(ServerReadyRequest.getDefaultInstance()).getReady(), "not ready");
                check(HealthGrpc.newBlockingStub(channel).check(HealthCheckRequest.getDefaultInstance()).getStatus()
                    == HealthCheckResponse.ServingStatus.SERVING, "not serving");
                break;
            case "metadata":
                check(triton().modelMetadata(ModelMetadataRequest.newBuilder().setName("echo").build()).getInputs(0)
                    .getDatatype().equals("FP32"), "another type");
                check(triton().modelConfig(ModelConfigRequest.newBuilder().setName("echo").build()).getConfig().getBackend()
                    .equals("identity"), "another backend");
                break;
            case "raw":
                for (int n : new int[] {0, 1, 1000, 3000000}) {
                    checkEcho(triton().modelInfer(echo(numbers(n)).build()), numbers(n));
                }
                break;
            case "typed":
                ModelInferRequest.Builder typed = echo(numbers(3)).clearRawInputContents();
                typed.getInputsBuilder(0).setContents(
                    InferTensorContents.newBuilder().addFp32Contents(0).addFp32Contents(1).addFp32Contents(2));
                checkEcho(triton().modelInfer(typed.build()), numbers(3));
                break;
            case "error":
                checkCode(echo(numbers(1)).setModelName("nobody").build(), triton(), Status.Code.NOT_FOUND,
                    "Request for unknown model: 'nobody' is not found");
                checkCode(echo(numbers(1)).clearInputs().build(), triton(), Status.Code.INVALID_ARGUMENT, null);
                break;
            case "stream":
                stream();
                break;
            case "deadline":
                checkCode(echo(numbers(1)).setModelName("slow").build(),
                    triton().withDeadlineAfter(100, TimeUnit.MILLISECONDS), Status.Code.DEADLINE_EXCEEDED, null);
                break;
            case "cancel":
                cancel();
                break;
            case "gzip":
                checkEcho(triton().withCompression("gzip").modelInfer(echo(numbers(100000)).build()), numbers(100000));
                break;
            default:
                throw new AssertionError("no scenario " + scenario);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        ManagedChannel channel = NettyChannelBuilder.forTarget("dns:///" + args[0]).usePlaintext()
            .maxInboundMessageSize(Integer.MAX_VALUE).build();
        try {
            new Client(channel).run(args[1]);
        } finally {
            channel.shutdownNow();
        }
    }
}
