// SPDX-License-Identifier: Apache-2.0

//! A client in Rust, generated from our .proto files: `client ADDRESS SCENARIO` ends with 0 when the server has answered
//! as ../README.md says.

use std::time::Duration;

use inference::grpc_inference_service_client::GrpcInferenceServiceClient;
use inference::model_infer_request::InferInputTensor;
use inference::{InferTensorContents, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::CompressionEncoding;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Streaming};

#[allow(clippy::all, dead_code)]
mod inference {
    tonic::include_proto!("inference");
}

#[allow(dead_code)]
mod health {
    tonic::include_proto!("grpc.health.v1");
}

type Client = GrpcInferenceServiceClient<Channel>;
type Failure = Box<dyn std::error::Error>;

const WITHIN: Duration = Duration::from_secs(60);

fn raw<T: Copy, const N: usize>(values: &[T], bytes: fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|value| bytes(*value)).collect()
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| (i % 100) as f32).collect()
}

fn tensor(name: &str, datatype: &str, n: usize) -> InferInputTensor {
    InferInputTensor { name: name.into(), datatype: datatype.into(), shape: vec![n as i64], ..Default::default() }
}

fn echo(values: &[f32]) -> ModelInferRequest {
    ModelInferRequest {
        model_name: "echo".into(),
        id: "one".into(),
        inputs: vec![tensor("INPUT0", "FP32", values.len())],
        raw_input_contents: vec![raw(values, f32::to_le_bytes)],
        ..Default::default()
    }
}

fn check_echo(answer: &ModelInferResponse, values: &[f32]) {
    assert_eq!(answer.id, "one");
    assert!(answer.raw_output_contents[0] == raw(values, f32::to_le_bytes), "other values");
}

/// Asks for an answer of each of these delays.
fn repeat(delays: &[u32]) -> ModelInferRequest {
    let n = delays.len();
    let values: Vec<i32> = (0..n as i32).collect();
    ModelInferRequest {
        model_name: "repeat".into(),
        inputs: vec![tensor("IN", "INT32", n), tensor("DELAY", "UINT32", n), tensor("WAIT", "UINT32", 1)],
        raw_input_contents: vec![raw(&values, i32::to_le_bytes), raw(delays, u32::to_le_bytes), vec![0; 4]],
        ..Default::default()
    }
}

async fn next(answers: &mut Streaming<ModelStreamInferResponse>) -> Result<i32, Failure> {
    let answer = timeout(WITHIN, answers.message()).await??.expect("the stream has ended");
    assert_eq!(answer.error_message, "");
    let bytes = &answer.infer_response.expect("no response").raw_output_contents[0];
    Ok(i32::from_le_bytes(bytes[..4].try_into()?))
}

async fn stream(triton: &mut Client) -> Result<(), Failure> {
    let (sender, requests) = mpsc::channel(4);
    sender.send(repeat(&[0; 4])).await?;
    let mut answers = triton.model_stream_infer(ReceiverStream::new(requests)).await?.into_inner();
    for round in 0..3 {
        for k in 0..4 {
            assert_eq!(next(&mut answers).await?, k);
        }
        if round < 2 {
            sender.send(repeat(&[0; 4])).await?;
        }
    }
    drop(sender);
    assert!(timeout(WITHIN, answers.message()).await??.is_none());
    Ok(())
}

/// A stream that is dropped is reset. The server then has time for others: `repeat` would be busy for a minute.
async fn cancel(triton: &mut Client) -> Result<(), Failure> {
    for _ in 0..3 {
        let (sender, requests) = mpsc::channel(4);
        sender.send(repeat(&[0, 60_000])).await?;
        let mut answers = triton.model_stream_infer(ReceiverStream::new(requests)).await?.into_inner();
        assert_eq!(next(&mut answers).await?, 0);
        drop(answers);
    }
    check_echo(triton.model_infer(echo(&numbers(1))).await?.get_ref(), &numbers(1));
    Ok(())
}

async fn run(scenario: &str, channel: Channel) -> Result<(), Failure> {
    let mut triton = Client::new(channel.clone()).max_decoding_message_size(usize::MAX).max_encoding_message_size(usize::MAX);
    match scenario {
        "health" => {
            let mut health = health::health_client::HealthClient::new(channel);
            assert!(triton.server_live(inference::ServerLiveRequest {}).await?.get_ref().live);
            assert!(triton.server_ready(inference::ServerReadyRequest {}).await?.get_ref().ready);
            let checked = health.check(health::HealthCheckRequest::default()).await?.into_inner();
            assert_eq!(checked.status(), health::health_check_response::ServingStatus::Serving);
        }
        "metadata" => {
            let asked = inference::ModelMetadataRequest { name: "echo".into(), ..Default::default() };
            assert_eq!(triton.model_metadata(asked).await?.get_ref().inputs[0].datatype, "FP32");
            let asked = inference::ModelConfigRequest { name: "echo".into(), ..Default::default() };
            let config = triton.model_config(asked).await?.into_inner().config.expect("no configuration");
            assert_eq!(config.backend, "identity");
        }
        "raw" => {
            for n in [0, 1, 1000, 3_000_000] {
                check_echo(triton.model_infer(echo(&numbers(n))).await?.get_ref(), &numbers(n));
            }
        }
        "typed" => {
            let mut request = echo(&numbers(3));
            request.raw_input_contents.clear();
            request.inputs[0].contents = Some(InferTensorContents { fp32_contents: numbers(3), ..Default::default() });
            check_echo(triton.model_infer(request).await?.get_ref(), &numbers(3));
        }
        "error" => {
            let mut request = echo(&numbers(1));
            request.model_name = "nobody".into();
            let error = triton.model_infer(request).await.unwrap_err();
            assert_eq!((error.code(), error.message()), (Code::NotFound, "Request for unknown model: 'nobody' is not found"));
            let mut request = echo(&numbers(1));
            request.inputs.clear();
            assert_eq!(triton.model_infer(request).await.unwrap_err().code(), Code::InvalidArgument);
        }
        "stream" => stream(&mut triton).await?,
        "deadline" => {
            let mut request = Request::new(ModelInferRequest { model_name: "slow".into(), ..echo(&numbers(1)) });
            request.set_timeout(Duration::from_millis(100));
            let code = triton.model_infer(request).await.unwrap_err().code();
            // Whichever comes first: the server's status, or this library's own timer, which it calls a cancellation.
            assert!(matches!(code, Code::DeadlineExceeded | Code::Cancelled), "{code:?}");
        }
        "cancel" => cancel(&mut triton).await?,
        "gzip" => {
            triton = triton.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip);
            let answer = triton.model_infer(echo(&numbers(100_000))).await?;
            assert_eq!(answer.metadata().get("grpc-encoding").map(|value| value.as_bytes()), Some(&b"gzip"[..]));
            check_echo(answer.get_ref(), &numbers(100_000));
        }
        _ => return Err(format!("no scenario {scenario}").into()),
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let channel = Endpoint::from_shared(format!("http://{}", arguments[1]))?.connect().await?;
    timeout(2 * WITHIN, run(&arguments[2], channel)).await?
}
