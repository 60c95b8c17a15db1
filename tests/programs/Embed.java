// SPDX-License-Identifier: Apache-2.0
//
// Embed REPOSITORY BACKENDS MODEL - embeds the server by Maven's binding of its C API, which JavaCPP has made from
// Triton's headers: starts it, prints its documents and the answers of an add_sub model, stops it. The tests run it.

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.bytedeco.javacpp.BytePointer;
import org.bytedeco.javacpp.IntPointer;
import org.bytedeco.javacpp.LongPointer;
import org.bytedeco.javacpp.Pointer;
import org.bytedeco.javacpp.PointerPointer;
import org.bytedeco.javacpp.SizeTPointer;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_Error;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_InferenceRequest;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_InferenceRequestReleaseFn_t;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_InferenceResponse;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_InferenceResponseCompleteFn_t;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_Message;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_ResponseAllocator;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_ResponseAllocatorAllocFn_t;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_ResponseAllocatorReleaseFn_t;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_Server;
import org.bytedeco.tritonserver.tritonserver.TRITONSERVER_ServerOptions;

import static org.bytedeco.tritonserver.global.tritonserver.*;

public class Embed {
    static void check(TRITONSERVER_Error error) {
        if (error == null || error.isNull())
            return;
        String text = TRITONSERVER_ErrorMessage(error);
        TRITONSERVER_ErrorDelete(error);
        throw new RuntimeException(text);
    }

    // ---- Documents

    interface Document {
        TRITONSERVER_Error write(TRITONSERVER_Message message);
    }

    static void print(String name, Document document) {
        TRITONSERVER_Message message = new TRITONSERVER_Message(null);
        BytePointer text = new BytePointer((Pointer) null);
        SizeTPointer size = new SizeTPointer(1);
        check(document.write(message));
        check(TRITONSERVER_MessageSerializeToJson(message, text, size));
        byte[] bytes = new byte[(int) size.get()];
        text.limit(size.get()).get(bytes);
        System.out.println(name + " " + new String(bytes));
        check(TRITONSERVER_MessageDelete(message));
    }

    // ---- What the server calls; kept here so that the collector leaves them alone

    static class Allocate extends TRITONSERVER_ResponseAllocatorAllocFn_t {
        @Override public TRITONSERVER_Error call(TRITONSERVER_ResponseAllocator allocator, String name, long size,
                                                 int preferredType, long preferredId, Pointer user,
                                                 PointerPointer buffer, PointerPointer bufferUser, IntPointer type,
                                                 LongPointer id) {
            type.put(0, TRITONSERVER_MEMORY_CPU);
            id.put(0, 0);
            buffer.put(0, size == 0 ? null : Pointer.malloc(size));
            bufferUser.put(0, null);
            return null;
        }
    }

    static class Release extends TRITONSERVER_ResponseAllocatorReleaseFn_t {
        @Override public TRITONSERVER_Error call(TRITONSERVER_ResponseAllocator allocator, Pointer buffer,
                                                 Pointer bufferUser, long size, int type, long id) {
            Pointer.free(buffer);
            return null;
        }
    }

    static TRITONSERVER_InferenceResponse response;
    static CountDownLatch ended;

    static class Complete extends TRITONSERVER_InferenceResponseCompleteFn_t {
        @Override public void call(TRITONSERVER_InferenceResponse got, int flags, Pointer user) {
            response = got;
            ended.countDown();
        }
    }

    static class Released extends TRITONSERVER_InferenceRequestReleaseFn_t {
        @Override public void call(TRITONSERVER_InferenceRequest request, int flags, Pointer user) {
            ended.countDown();
        }
    }

    static final Allocate allocate = new Allocate();
    static final Release release = new Release();
    static final Complete complete = new Complete();
    static final Released released = new Released();

    // ---- One request

    static void printOutputs() {
        IntPointer count = new IntPointer(1);
        check(TRITONSERVER_InferenceResponseOutputCount(response, count));
        for (int i = 0; i < count.get(); i++) {
            BytePointer name = new BytePointer((Pointer) null);
            IntPointer datatype = new IntPointer(1), memory = new IntPointer(1);
            LongPointer shape = new LongPointer((Pointer) null), dims = new LongPointer(1), id = new LongPointer(1);
            Pointer base = new Pointer(), user = new Pointer();
            SizeTPointer size = new SizeTPointer(1);
            check(TRITONSERVER_InferenceResponseOutput(response, i, name, datatype, shape, dims, base, size, memory, id,
                                                       user));
            int[] values = new int[(int) (size.get() / Integer.BYTES)];
            new IntPointer(base).get(values);
            StringBuilder line = new StringBuilder("output " + name.getString());
            for (int value : values)
                line.append(' ').append(value);
            System.out.println(line);
        }
    }

    static void add(TRITONSERVER_InferenceRequest request, String name, IntPointer data) {
        check(TRITONSERVER_InferenceRequestAddInput(request, name, TRITONSERVER_TYPE_INT32, new long[] {1, 16}, 2));
        check(TRITONSERVER_InferenceRequestAppendInputData(request, name, data, 16 * Integer.BYTES,
                                                           TRITONSERVER_MEMORY_CPU, 0));
    }

    static void infer(TRITONSERVER_Server server, TRITONSERVER_ResponseAllocator allocator, String model, int from)
        throws InterruptedException {
        TRITONSERVER_InferenceRequest request = new TRITONSERVER_InferenceRequest(null);
        IntPointer a = new IntPointer(16), b = new IntPointer(16);
        for (int i = 0; i < 16; i++) {
            a.put(i, from + i);
            b.put(i, 1);
        }
        check(TRITONSERVER_InferenceRequestNew(request, server, model, -1));
        add(request, "INPUT0", a);
        add(request, "INPUT1", b);
        check(TRITONSERVER_InferenceRequestSetReleaseCallback(request, released, null));
        check(TRITONSERVER_InferenceRequestSetResponseCallback(request, allocator, null, complete, null));
        ended = new CountDownLatch(2);
        check(TRITONSERVER_ServerInferAsync(server, request, null));
        if (!ended.await(20, TimeUnit.SECONDS))
            throw new RuntimeException("no answer within 20 s");
        check(TRITONSERVER_InferenceResponseError(response));
        printOutputs();
        check(TRITONSERVER_InferenceResponseDelete(response));
        check(TRITONSERVER_InferenceRequestDelete(request));
    }

    public static void main(String[] args) throws Exception {
        TRITONSERVER_ServerOptions options = new TRITONSERVER_ServerOptions(null);
        TRITONSERVER_Server server = new TRITONSERVER_Server(null);
        TRITONSERVER_ResponseAllocator allocator = new TRITONSERVER_ResponseAllocator(null);
        String model = args[2];

        check(TRITONSERVER_ServerOptionsNew(options));
        check(TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, args[0]));
        check(TRITONSERVER_ServerOptionsSetBackendDirectory(options, args[1]));
        check(TRITONSERVER_ServerOptionsSetLogInfo(options, false));
        check(TRITONSERVER_ServerNew(server, options));
        check(TRITONSERVER_ServerOptionsDelete(options));

        print("server", message -> TRITONSERVER_ServerMetadata(server, message));
        print("model", message -> TRITONSERVER_ServerModelMetadata(server, model, -1, message));
        check(TRITONSERVER_ResponseAllocatorNew(allocator, allocate, release, null));
        infer(server, allocator, model, 0);
        infer(server, allocator, model, 100);
        print("statistics", message -> TRITONSERVER_ServerModelStatistics(server, model, -1, message));
        try {
            infer(server, allocator, "nobody", 0);
        } catch (RuntimeException error) {
            System.out.println("refused " + error.getMessage());
        }
        check(TRITONSERVER_ResponseAllocatorDelete(allocator));
        check(TRITONSERVER_ServerStop(server));
        check(TRITONSERVER_ServerDelete(server));
        System.out.println("stopped");
    }
}
