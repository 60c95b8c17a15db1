// SPDX-License-Identifier: Apache-2.0

// A client in Go, generated from our .proto files: `client ADDRESS SCENARIO` ends with 0 when the server has answered as
// ../README.md says.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"conch/client/inference"
)

const within = time.Minute

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check(fine bool, format string, args ...any) {
	if !fine {
		must(fmt.Errorf(format, args...))
	}
}

func checkCode(err error, code codes.Code) {
	check(status.Code(err) == code, "%v instead of %v", err, code)
}

func raw[T any](values []T) []byte {
	var b bytes.Buffer
	must(binary.Write(&b, binary.LittleEndian, values))
	return b.Bytes()
}

func tensor(name, datatype string, n int) *inference.ModelInferRequest_InferInputTensor {
	return &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: datatype, Shape: []int64{int64(n)}}
}

func echo(values []float32) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "echo", Id: "one",
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{tensor("INPUT0", "FP32", len(values))},
		RawInputContents: [][]byte{raw(values)},
	}
}

func checkEcho(answer *inference.ModelInferResponse, values []float32) {
	check(answer.Id == "one" && answer.ModelName == "echo", "another answer: %v", answer.ModelName)
	check(bytes.Equal(answer.RawOutputContents[0], raw(values)), "other values")
}

// repeat asks for an answer of each of these delays.
func repeat(delays []uint32) *inference.ModelInferRequest {
	values := make([]int32, len(delays))
	for i := range values {
		values[i] = int32(i)
	}
	n := len(delays)
	return &inference.ModelInferRequest{
		ModelName: "repeat",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{
			tensor("IN", "INT32", n), tensor("DELAY", "UINT32", n), tensor("WAIT", "UINT32", 1)},
		RawInputContents: [][]byte{raw(values), raw(delays), raw([]uint32{0})},
	}
}

func numbers(n int) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(i % 100)
	}
	return values
}

func receive(stream inference.GRPCInferenceService_ModelStreamInferClient) int32 {
	answer, err := stream.Recv()
	must(err)
	check(answer.ErrorMessage == "", "%s", answer.ErrorMessage)
	return int32(binary.LittleEndian.Uint32(answer.InferResponse.RawOutputContents[0]))
}

// sizes notes how the last answer came: its bytes, and those after unpacking.
type sizes struct{ packed, unpacked int }

func (s *sizes) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (s *sizes) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (s *sizes) HandleConn(context.Context, stats.ConnStats)                       {}
func (s *sizes) HandleRPC(_ context.Context, event stats.RPCStats) {
	if in, ok := event.(*stats.InPayload); ok {
		s.packed, s.unpacked = in.CompressedLength, in.Length
	}
}

func main() {
	var last sizes
	channel, err := grpc.NewClient("passthrough:///"+os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(&last), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	must(err)
	defer channel.Close()
	triton := inference.NewGRPCInferenceServiceClient(channel)
	health := grpc_health_v1.NewHealthClient(channel)
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()

	switch os.Args[2] {
	case "health":
		live, err := triton.ServerLive(ctx, &inference.ServerLiveRequest{})
		must(err)
		ready, err := triton.ServerReady(ctx, &inference.ServerReadyRequest{})
		must(err)
		checked, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		must(err)
		check(live.Live && ready.Ready, "not ready")
		check(checked.Status == grpc_health_v1.HealthCheckResponse_SERVING, "%v", checked.Status)
	case "watch":
		watch, err := health.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		must(err)
		first, err := watch.Recv()
		must(err)
		check(first.Status == grpc_health_v1.HealthCheckResponse_SERVING, "%v", first.Status)
	case "metadata":
		metadata, err := triton.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "echo"})
		must(err)
		check(metadata.Inputs[0].Datatype == "FP32" && metadata.Inputs[0].Shape[0] == -1, "%v", metadata)
		config, err := triton.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "echo"})
		must(err)
		check(config.Config.Backend == "identity", "%v", config)
	case "raw":
		for _, n := range []int{0, 1, 1000, 3000000} {
			answer, err := triton.ModelInfer(ctx, echo(numbers(n)))
			must(err)
			checkEcho(answer, numbers(n))
		}
	case "typed":
		request := echo([]float32{1, 2, 3})
		request.RawInputContents = nil
		request.Inputs[0].Contents = &inference.InferTensorContents{Fp32Contents: []float32{1, 2, 3}}
		answer, err := triton.ModelInfer(ctx, request)
		must(err)
		checkEcho(answer, []float32{1, 2, 3})
	case "error":
		request := echo([]float32{1})
		request.ModelName = "nobody"
		_, err := triton.ModelInfer(ctx, request)
		checkCode(err, codes.NotFound)
		check(status.Convert(err).Message() == "Request for unknown model: 'nobody' is not found", "%v", err)
		request.ModelName, request.Inputs = "echo", nil
		_, err = triton.ModelInfer(ctx, request)
		checkCode(err, codes.InvalidArgument)
	case "stream":
		stream, err := triton.ModelStreamInfer(ctx)
		must(err)
		for i := int32(0); i < 3; i++ {
			must(stream.Send(repeat([]uint32{0, 0, 0, 0})))
			for k := int32(0); k < 4; k++ {
				got := receive(stream)
				check(got == k, "%d instead of %d", got, k)
			}
		}
		must(stream.CloseSend())
		_, err = stream.Recv()
		check(err == io.EOF, "%v at the end", err)
	case "deadline":
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		request := echo([]float32{1})
		request.ModelName = "slow"
		_, err := triton.ModelInfer(short, request)
		checkCode(err, codes.DeadlineExceeded)
	case "cancel":
		inner, cancel := context.WithCancel(ctx)
		stream, err := triton.ModelStreamInfer(inner)
		must(err)
		must(stream.Send(repeat([]uint32{0, 60000})))
		check(receive(stream) == 0, "another answer")
		cancel()
		_, err = stream.Recv()
		checkCode(err, codes.Canceled)
		answer, err := triton.ModelInfer(ctx, echo([]float32{1}))
		must(err)
		checkEcho(answer, []float32{1})
	case "gzip":
		answer, err := triton.ModelInfer(ctx, echo(numbers(100000)), grpc.UseCompressor(gzip.Name))
		must(err)
		checkEcho(answer, numbers(100000))
		check(last.packed < last.unpacked/2, "the answer came in %d bytes of %d", last.packed, last.unpacked)
	default:
		check(false, "no scenario %s", os.Args[2])
	}
}
