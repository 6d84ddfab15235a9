//! The one place that names the bindings crate, so that another one takes a change of this file.
//!
//! Only classic verbs are here: in these bindings every extended operation (`ibv_create_qp_ex`,
//! `ibv_create_cq_ex`, ..) reports "not supported" on 64-bit machines whatever the device can do.

use std::os::raw::{c_int, c_void};

pub(super) use rdma_sys::{
    IBV_GID_TYPE_ROCE_V2, ibv_access_flags, ibv_ack_cq_events, ibv_alloc_pd, ibv_close_device,
    ibv_comp_channel, ibv_context, ibv_cq, ibv_create_comp_channel, ibv_create_cq, ibv_create_qp,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_destroy_qp,
    ibv_device, ibv_device_attr, ibv_free_device_list, ibv_get_cq_event, ibv_get_device_list,
    ibv_get_device_name, ibv_gid, ibv_gid_entry, ibv_modify_qp, ibv_mr, ibv_open_device, ibv_pd,
    ibv_poll_cq, ibv_port_attr, ibv_port_state, ibv_post_recv, ibv_post_send, ibv_qp, ibv_qp_attr,
    ibv_qp_attr_mask, ibv_qp_init_attr, ibv_qp_state, ibv_qp_type, ibv_query_device, ibv_recv_wr,
    ibv_reg_mr, ibv_req_notify_cq, ibv_send_flags, ibv_send_wr, ibv_sge, ibv_wc, ibv_wc_flags,
    ibv_wc_status, ibv_wc_status_str, ibv_wr_opcode,
};

#[cfg(test)]
pub(super) use rdma_sys::ibv_query_qp;

/// `IBV_LINK_LAYER_INFINIBAND` of an anonymous enum that the bindings leave out.
pub(super) const LINK_LAYER_INFINIBAND: u8 = 1;
/// `IBV_LINK_LAYER_ETHERNET` of the same enum.
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;

/// Numbers of `enum ibv_event_type`. A newer library may report others.
pub(super) mod event_type {
    pub(in crate::verbs) const CQ_ERR: u32 = 0;
    pub(in crate::verbs) const QP_FATAL: u32 = 1;
    pub(in crate::verbs) const QP_REQ_ERR: u32 = 2;
    pub(in crate::verbs) const QP_ACCESS_ERR: u32 = 3;
    pub(in crate::verbs) const DEVICE_FATAL: u32 = 8;
    pub(in crate::verbs) const PORT_ACTIVE: u32 = 9;
    pub(in crate::verbs) const PORT_ERR: u32 = 10;
}

/// What an asynchronous event is about: one of these, as its type says.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) union AsyncEventElement {
    pub(super) queue_pair: *mut ibv_qp,
    pub(super) any: *mut c_void,
}

/// `struct ibv_async_event`, with the type as a number: the bindings make it a Rust enum, which a
/// library that knows more events would fill with a value that such an enum must not have.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct AsyncEvent {
    pub(super) element: AsyncEventElement,
    pub(super) event_type: u32,
}

// The library fills its own struct, so ours must not be smaller.
const _: () = assert!(size_of::<AsyncEvent>() == size_of::<rdma_sys::ibv_async_event>());
const _: () = assert!(align_of::<AsyncEvent>() == align_of::<rdma_sys::ibv_async_event>());

unsafe extern "C" {
    /// Takes the next asynchronous event. 0, or -1 with `errno` set.
    pub(super) fn ibv_get_async_event(context: *mut ibv_context, event: *mut AsyncEvent) -> c_int;

    /// Gives an event back. What it is about cannot be destroyed before.
    pub(super) fn ibv_ack_async_event(event: *mut AsyncEvent);

    /// What the header's inline function `ibv_query_gid_table` calls: the number of entries
    /// written, or a negative errno.
    pub(super) fn _ibv_query_gid_table(
        context: *mut ibv_context,
        entries: *mut ibv_gid_entry,
        max_entries: usize,
        flags: u32,
        entry_size: usize,
    ) -> isize;
}

/// Attributes of a port. 0, or an errno.
///
/// # Safety
/// `context` is an open device and `attributes` points to a zeroed struct.
pub(super) unsafe fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the exported function fills the struct of older releases, a prefix of this one that
    // has all that is read here; the caller vouches for both pointers.
    unsafe { rdma_sys::ibv_query_port(context, port, attributes.cast()) }
}
