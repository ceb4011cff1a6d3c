// The kernels as XLA calls them. All have one signature, which is what takes a compiler the time.

#include "samples.h"
#include "towers.h"

namespace {

namespace ffi = xla::ffi;

auto signature() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attrs(); }

}  // namespace

XLA_FFI_DEFINE_HANDLER_SYMBOL(dressage_forward, dressage::forward, signature());
XLA_FFI_DEFINE_HANDLER_SYMBOL(dressage_backward, dressage::backward, signature());
XLA_FFI_DEFINE_HANDLER_SYMBOL(dressage_gather, dressage::gather, signature());
XLA_FFI_DEFINE_HANDLER_SYMBOL(dressage_draw, dressage::draw, signature());
