/* SPDX-License-Identifier: Apache-2.0 */
//! scale in Rust: OUT = IN times the request's parameter `factor` (2 if it has none).
#![allow(non_snake_case)]

use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::{copy_nonoverlapping, null, null_mut};

type Handle = *mut c_void; // all objects of the interface
type Error = *mut c_void; // NULL: success
type Outcome = Result<(), (c_int, String)>;

const INTERNAL: c_int = 1; // of TRITONSERVER_Error_Code
const INVALID_ARG: c_int = 3;
const DOUBLE: c_int = 3; // of TRITONSERVER_ParameterType
const FP32: c_int = 11; // of TRITONSERVER_DataType
const FINAL: u32 = 1;
const RELEASE_ALL: u32 = 1;

extern "C" {
    fn TRITONSERVER_ErrorNew(code: c_int, text: *const c_char) -> Error;
    fn TRITONSERVER_ErrorDelete(err: Error);
    fn TRITONSERVER_ErrorCode(err: Error) -> c_int;
    fn TRITONSERVER_ErrorMessage(err: Error) -> *const c_char;
    fn TRITONBACKEND_RequestParameterCount(request: Handle, n: *mut u32) -> Error;
    fn TRITONBACKEND_RequestParameter(request: Handle, index: u32, key: *mut *const c_char, kind: *mut c_int, value: *mut *const c_void) -> Error;
    fn TRITONBACKEND_RequestInput(request: Handle, name: *const c_char, input: *mut Handle) -> Error;
    fn TRITONBACKEND_RequestRelease(request: Handle, flags: u32) -> Error;
    fn TRITONBACKEND_InputProperties(input: Handle, name: *mut *const c_char, kind: *mut c_int, shape: *mut *const i64, rank: *mut u32, size: *mut u64, n_buffers: *mut u32) -> Error;
    fn TRITONBACKEND_InputBuffer(input: Handle, index: u32, data: *mut *const c_void, size: *mut u64, memory: *mut c_int, memory_id: *mut i64) -> Error;
    fn TRITONBACKEND_ResponseNew(response: *mut Handle, request: Handle) -> Error;
    fn TRITONBACKEND_ResponseOutput(response: Handle, output: *mut Handle, name: *const c_char, kind: c_int, shape: *const i64, rank: u32) -> Error;
    fn TRITONBACKEND_ResponseSend(response: Handle, flags: u32, err: Error) -> Error;
    fn TRITONBACKEND_OutputBuffer(output: Handle, data: *mut *mut c_void, size: u64, memory: *mut c_int, memory_id: *mut i64) -> Error;
    fn TRITONBACKEND_ModelInstanceReportStatistics(instance: Handle, request: Handle, success: bool, start: u64, compute: u64, computed: u64, end: u64) -> Error;
    fn clock_gettime(clock: c_int, time: *mut [i64; 2]) -> c_int;
}

/// An error of the interface as one of ours.
unsafe fn check(err: Error) -> Outcome {
    if err.is_null() {
        return Ok(());
    }
    let text = CStr::from_ptr(TRITONSERVER_ErrorMessage(err)).to_string_lossy().into_owned();
    let code = TRITONSERVER_ErrorCode(err);
    TRITONSERVER_ErrorDelete(err);
    Err((code, text))
}

/// The clock of the statistics, CLOCK_MONOTONIC.
unsafe fn now_ns() -> u64 {
    let mut time = [0i64; 2];
    clock_gettime(1, &mut time);
    time[0] as u64 * 1_000_000_000 + time[1] as u64
}

unsafe fn read_factor(request: Handle) -> Result<f64, (c_int, String)> {
    let mut n = 0;
    check(TRITONBACKEND_RequestParameterCount(request, &mut n))?;
    for i in 0..n {
        let (mut key, mut kind, mut value) = (null(), 0, null());
        check(TRITONBACKEND_RequestParameter(request, i, &mut key, &mut kind, &mut value))?;
        if CStr::from_ptr(key).to_bytes() != b"factor" {
            continue;
        }
        if kind != DOUBLE {
            return Err((INVALID_ARG, "factor must be a DOUBLE".to_string()));
        }
        return Ok(*(value as *const f64));
    }
    Ok(2.0)
}

/// Compute one request into its response.
unsafe fn scale(request: Handle, response: Handle) -> Outcome {
    let factor = read_factor(request)? as f32;
    let (mut input, mut output, mut shape, mut to) = (null_mut(), null_mut(), null(), null_mut());
    let (mut rank, mut size, mut n_buffers, mut done) = (0, 0, 0, 0);
    let (mut memory, mut memory_id) = (0, 0); // on the host
    check(TRITONBACKEND_RequestInput(request, b"IN\0".as_ptr().cast(), &mut input))?;
    check(TRITONBACKEND_InputProperties(input, null_mut(), null_mut(), &mut shape, &mut rank, &mut size, &mut n_buffers))?;
    check(TRITONBACKEND_ResponseOutput(response, &mut output, b"OUT\0".as_ptr().cast(), FP32, shape, rank))?;
    check(TRITONBACKEND_OutputBuffer(output, &mut to, size, &mut memory, &mut memory_id))?;
    // The data may come in pieces, and a piece may end anywhere: put them together first.
    for i in 0..n_buffers {
        let (mut from, mut n) = (null(), 0);
        check(TRITONBACKEND_InputBuffer(input, i, &mut from, &mut n, &mut memory, &mut memory_id))?;
        if n > 0 {
            copy_nonoverlapping(from as *const u8, (to as *mut u8).add(done), n as usize);
        }
        done += n as usize;
    }
    for i in 0..size as usize / 4 {
        let number = (to as *mut f32).add(i); // shared memory may begin at any address
        number.write_unaligned(number.read_unaligned() * factor);
    }
    Ok(())
}

unsafe fn run(instance: Handle, request: Handle) {
    let start = now_ns();
    let mut response = null_mut();
    // A panic must not cross into the server, which is C.
    let done = catch_unwind(AssertUnwindSafe(|| {
        check(TRITONBACKEND_ResponseNew(&mut response, request)).and_then(|_| scale(request, response))
    }))
    .unwrap_or_else(|_| Err((INTERNAL, "the backend panicked".to_string())));
    let end = now_ns();
    let err = match &done {
        Ok(()) => null_mut(),
        Err((code, text)) => {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            TRITONSERVER_ErrorNew(*code, text.as_ptr())
        }
    };
    // Nobody waits for the errors of these: the answer has gone.
    TRITONSERVER_ErrorDelete(TRITONBACKEND_ModelInstanceReportStatistics(instance, request, err.is_null(), start, start, end, end));
    if !response.is_null() {
        // Taken by the call, whatever it returns; without one the release answers.
        TRITONSERVER_ErrorDelete(TRITONBACKEND_ResponseSend(response, FINAL, err));
    }
    TRITONSERVER_ErrorDelete(err);
    TRITONSERVER_ErrorDelete(TRITONBACKEND_RequestRelease(request, RELEASE_ALL));
}

/// The only function that a backend must have. Returning NULL, it has taken all the requests.
#[no_mangle]
pub unsafe extern "C" fn TRITONBACKEND_ModelInstanceExecute(instance: Handle, requests: *mut Handle, n: u32) -> Error {
    for i in 0..n as usize {
        run(instance, *requests.add(i));
    }
    null_mut()
}
