// The part of NCCL's interface that parallel/transport/nccl uses, between emulated GPUs of one
// process.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
struct ncclComm;
using ncclComm_t = ncclComm*;
const char* ncclGetErrorString(ncclResult_t);
const char* ncclGetLastError(ncclComm_t);
struct ncclUniqueId {
  char internal[128];
};
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId*);
struct ncclConfig_t {
  int blocking = 1;
  int maxCTAs = 0;
};
#define NCCL_CONFIG_INITIALIZER (ncclConfig_t{})
ncclResult_t ncclCommInitRankConfig(ncclComm_t*, int ranks, ncclUniqueId, int rank, ncclConfig_t*);
#define NCCL_SPLIT_NOCOLOR (-1)
ncclResult_t ncclCommSplit(ncclComm_t, int color, int key, ncclComm_t* part, ncclConfig_t*);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* error);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void*, std::size_t count, ncclDataType_t, int peer, ncclComm_t,
                      cudaStream_t);
ncclResult_t ncclRecv(void*, std::size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t);
ncclResult_t ncclAllReduce(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t,
                           ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void*, void*, std::size_t count, ncclDataType_t, ncclRedOp_t,
                               ncclComm_t, cudaStream_t);
ncclResult_t ncclAllGather(const void*, void*, std::size_t count, ncclDataType_t, ncclComm_t,
                           cudaStream_t);
ncclResult_t ncclBroadcast(const void*, void*, std::size_t count, ncclDataType_t, int root,
                           ncclComm_t, cudaStream_t);

// Faults for tests, and counts.
namespace emulation {
enum class NcclFault { none, opening_never_ends, network };
void set_nccl_fault(NcclFault);
int nccl_communicators();  // neither destroyed nor aborted
int nccl_splits();         // complete ones so far
int nccl_unique_ids();     // so far
}  // namespace emulation
