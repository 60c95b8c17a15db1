// SPDX-License-Identifier: Apache-2.0
//
// grpc_echo - the baseline of the gRPC rows: ModelInfer by the asynchronous API of grpc++, with one
// completion queue, one thread and 64 calls waiting for a client. It executes no model: the answer
// has the name, type and shape of the last input and its bytes, which move and are not copied.
//
//     bench_grpc_echo        prints "port N", then serves until it is killed
#include <cstdio>
#include <memory>

#include <grpcpp/grpcpp.h>

#include "proto/inference.grpc.pb.h"

namespace {

using inference::GRPCInferenceService;
using inference::ModelInferRequest;
using inference::ModelInferResponse;

class Call {
public:
    Call(GRPCInferenceService::AsyncService *service, grpc::ServerCompletionQueue *queue)
        : service_(service), queue_(queue), writer_(&context_)
    {
        service_->RequestModelInfer(&context_, &request_, &writer_, queue_, queue_, this);
    }

    // Answers the call, or ends it when the answer was sent.
    void GoOn(bool fine)
    {
        if (answered_ || !fine) {
            delete this;
            return;
        }
        new Call(service_, queue_);
        answered_ = true;
        FillResponse();
        writer_.Finish(response_, grpc::Status::OK, this);
    }

private:
    void FillResponse()
    {
        int last = request_.inputs_size() - 1;
        if (last < 0 || request_.raw_input_contents_size() <= last)
            return;
        response_.set_model_name(request_.model_name());
        response_.set_model_version("1");
        auto *output = response_.add_outputs();
        output->set_name(last == 0 ? "OUTPUT0" : "OUTPUT1");
        output->set_datatype(request_.inputs(last).datatype());
        output->mutable_shape()->CopyFrom(request_.inputs(last).shape());
        response_.add_raw_output_contents()->swap(*request_.mutable_raw_input_contents(last));
    }

    GRPCInferenceService::AsyncService *service_;
    grpc::ServerCompletionQueue *queue_;
    grpc::ServerContext context_;
    ModelInferRequest request_;
    ModelInferResponse response_;
    grpc::ServerAsyncResponseWriter<ModelInferResponse> writer_;
    bool answered_ = false;
};

} // namespace

int main()
{
    enum { WAITING_CALLS = 64 };
    GRPCInferenceService::AsyncService service;
    grpc::ServerBuilder builder;
    int port = 0;

    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    auto queue = builder.AddCompletionQueue();
    auto server = builder.BuildAndStart();
    if (!server || port == 0)
        return 1;
    for (int i = 0; i < WAITING_CALLS; i++)
        new Call(&service, queue.get());
    std::printf("port %d\n", port);
    std::fflush(stdout);

    void *call;
    bool fine;
    while (queue->Next(&call, &fine))
        static_cast<Call *>(call)->GoOn(fine);
    return 0;
}
