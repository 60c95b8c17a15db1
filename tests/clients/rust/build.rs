// SPDX-License-Identifier: Apache-2.0

fn main() {
    let root = std::env::var("PROTOS").expect("PROTOS names the folder of our .proto files");
    let files = ["inference", "health"].map(|name| format!("{root}/proto/{name}.proto"));
    tonic_prost_build::configure().build_server(false).compile_protos(&files, &[root]).expect("protoc");
}
