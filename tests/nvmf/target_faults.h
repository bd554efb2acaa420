/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways in which the target lies, one row each: name, what it does, what the rule's argument is.
 * The table is data so that a suite can walk it and none is left out.
 */
#ifndef ROS2_TESTS_NVMF_TARGET_FAULTS_H
#define ROS2_TESTS_NVMF_TARGET_FAULTS_H

/* X(identifier, "name", "what the target does; arg: ...") */
#define TARGET_FAULTS_ANSWERS(X)                                                                   \
	X(CQE_WRONG_ID, "cqe-wrong-id", "answers with another command id; arg: xor, 0 = 0x8000")   \
	X(CQE_NEVER, "cqe-never", "never answers (what the command does is done)")                 \
	X(CQE_TWICE, "cqe-twice", "answers twice")                                                 \
	X(CQE_FREE_ID, "cqe-free-id", "answers a command id that is free, then honestly")          \
	X(CQE_WRONG_STATUS, "cqe-wrong-status", "answers with the status of arg, 15 bits")         \
	X(CQE_RESULT, "cqe-result", "answers with arg in dwords 0 and 1")                          \
	X(DATA_SHORT, "data-short", "sends arg bytes less (0 = 1), says it was the last PDU")      \
	X(DATA_LONG, "data-long", "sends arg bytes more (0 = 4) than were asked for")              \
	X(DATA_BEYOND, "data-beyond", "sends data at arg (0 = the end) after the buffer's begin")  \
	X(DATA_OVERFLOW, "data-overflow", "offset and length of the data overflow 32 bits")        \
	X(DATA_FOR_WRITE, "data-for-write", "sends C2HData for a command that takes none")         \
	X(DATA_WRONG_ID, "data-wrong-id",                                                          \
	  "sends C2HData for another command id; arg: xor, 0 = to one that is free")               \
	X(DATA_ORDER, "data-order", "sends the second half of the data first")                     \
	X(DATA_TWICE, "data-twice", "sends the same data twice")                                   \
	X(DATA_ZERO, "data-zero", "sends a C2HData PDU without data")                              \
	X(DATA_NO_LAST, "data-no-last", "no C2HData PDU says that it is the last")                 \
	X(DATA_LAST_EARLY, "data-last-early", "the first half says that it is the last")           \
	X(DATA_SUCCESS_EARLY, "data-success-early", "SUCCESS without LAST_PDU")                    \
	X(DATA_LATE, "data-late", "answers, then sends the data")                                  \
	X(DATA_NONE, "data-none", "answers success and sends no data")                             \
	X(ABORT_LATE, "abort-late", "holds the command until it is aborted, then sends data for it")

#define TARGET_FAULTS_R2T(X)                                                                       \
	X(R2T_BEYOND, "r2t-beyond", "asks for arg bytes (0 = 512) beyond the command's data")      \
	X(R2T_OVERFLOW, "r2t-overflow", "offset and length overflow 32 bits")                      \
	X(R2T_OVERLAP, "r2t-overlap", "asks again for bytes that it has")                          \
	X(R2T_TWICE, "r2t-twice", "sends the same R2T twice")                                      \
	X(R2T_FLOOD, "r2t-flood", "more R2Ts in flight than the host takes")                       \
	X(R2T_FOR_READ, "r2t-for-read", "sends an R2T for a command that has no data to give")     \
	X(R2T_IN_CAPSULE, "r2t-in-capsule", "sends an R2T for data that came in the capsule")      \
	X(R2T_ZERO, "r2t-zero", "asks for no bytes")                                               \
	X(R2T_WRONG_ID, "r2t-wrong-id", "sends an R2T for a command id that is free")              \
	X(R2T_NEVER, "r2t-never", "never asks for the data")                                       \
	X(R2T_EARLY_CQE, "r2t-early-cqe", "answers success though it did not get the data")

#define TARGET_FAULTS_PDU(X)                                                                       \
	X(PDU_HDGST, "pdu-hdgst", "a wrong header digest")                                         \
	X(PDU_DDGST, "pdu-ddgst", "a wrong data digest")                                           \
	X(PDU_BIT, "pdu-bit", "a bit of the data is turned, the digest is of the data before")     \
	X(PDU_NO_HDGST, "pdu-no-hdgst", "no header digest though it was agreed on")                \
	X(PDU_HDGST_UNASKED, "pdu-hdgst-unasked",                                                  \
	  "says there is a header digest: none was agreed")                                        \
	X(PDU_PLEN_HUGE, "pdu-plen-huge", "PLEN is arg (0 = 0xffffffff)")                          \
	X(PDU_PLEN_SHORT, "pdu-plen-short", "PLEN is less than HLEN")                              \
	X(PDU_HLEN, "pdu-hlen", "HLEN is arg")                                                     \
	X(PDU_PDO, "pdu-pdo", "PDO is arg (0 = 4): in the header, or unaligned, or beyond")        \
	X(PDU_TYPE, "pdu-type", "the type is arg (0 = 0xff)")                                      \
	X(PDU_FLAGS, "pdu-flags", "the flags are arg")                                             \
	X(PDU_ICRESP_AGAIN, "pdu-icresp-again", "a second ICResp before it")                       \
	X(PDU_COMMAND, "pdu-command", "a command capsule, which only hosts send, before it")       \
	X(PDU_TERM, "pdu-term", "C2HTermReq in its place, then goes silent")                       \
	X(PDU_TERM_GARBAGE, "pdu-term-garbage", "C2HTermReq with PLEN 0xffff and garbage")         \
	X(PDU_GARBAGE, "pdu-garbage", "random bytes in its place")                                 \
	X(PDU_CLOSE, "pdu-close", "closes after arg bytes of it")                                  \
	X(PDU_RESET, "pdu-reset", "resets after arg bytes of it")                                  \
	X(PDU_SLOW, "pdu-slow", "this PDU and all after it: a byte each arg ms (0 = 1000)")        \
	X(RX_CLOSE, "rx-close", "closes when a PDU of type arg - 1 (0 = any) has come")

#define TARGET_FAULTS_SETUP(X)                                                                     \
	X(IC_NEVER, "ic-never", "no ICResp")                                                       \
	X(IC_TYPE, "ic-type", "ICResp with the type of arg")                                       \
	X(IC_HLEN, "ic-hlen", "ICResp with HLEN arg")                                              \
	X(IC_PLEN, "ic-plen", "ICResp with PLEN arg")                                              \
	X(IC_PFV, "ic-pfv", "ICResp with PFV arg (0 = 1)")                                         \
	X(IC_CPDA, "ic-cpda", "ICResp with CPDA arg (0 = 32)")                                     \
	X(IC_DIGEST, "ic-digest", "ICResp with the digests turned: gives what was not asked")      \
	X(IC_MAXDATA, "ic-maxdata", "ICResp with MAXH2CDATA arg")                                  \
	X(IC_GARBAGE, "ic-garbage", "128 random bytes in place of ICResp")                         \
	X(CONNECT_STATUS, "connect-status", "Connect fails with the status of arg, 15 bits")       \
	X(CONNECT_RESULT, "connect-result", "Connect's dword 0 is arg")                            \
	X(CONNECT_CNTLID, "connect-cntlid", "another controller id; arg: xor, 0 = 1")              \
	X(CONNECT_NEVER, "connect-never", "no answer to Connect")                                  \
	X(CSTS_NEVER, "csts-never", "CSTS.RDY never becomes 1")                                    \
	X(CSTS_CFS, "csts-cfs", "CSTS says that the controller has failed")                        \
	X(CSTS_STUCK, "csts-stuck", "CSTS.RDY never becomes 0")                                    \
	X(CAP_VALUE, "cap-value", "CAP is arg")                                                    \
	X(VS_VALUE, "vs-value", "VS is arg")

#define TARGET_FAULTS_ADMIN(X)                                                                     \
	X(ID_CNTLID, "id-cntlid", "Identify says another controller id; arg: xor, 0 = 1")          \
	X(ID_MDTS, "id-mdts", "MDTS is arg")                                                       \
	X(ID_IOCCSZ, "id-ioccsz", "IOCCSZ is arg")                                                 \
	X(ID_IORCSZ, "id-iorcsz", "IORCSZ is arg")                                                 \
	X(ID_ICDOFF, "id-icdoff", "ICDOFF is arg")                                                 \
	X(ID_SGLS, "id-sgls", "SGLS is arg")                                                       \
	X(ID_SQES, "id-sqes", "SQES is arg")                                                       \
	X(ID_KAS, "id-kas", "KAS is arg")                                                          \
	X(ID_NN, "id-nn", "NN is arg")                                                             \
	X(ID_MAXCMD, "id-maxcmd", "MAXCMD is arg")                                                 \
	X(ID_CNTRLTYPE, "id-cntrltype", "CNTRLTYPE is arg")                                        \
	X(ID_SUBNQN, "id-subnqn", "SUBNQN is not terminated and not the one asked for")            \
	X(ID_LIMITS, "id-limits", "the limits of the NVM command set are bytes of arg")            \
	X(ID_GARBAGE, "id-garbage", "random bytes in place of the structure")                      \
	X(NS_NSZE, "ns-nsze", "NSZE is arg")                                                       \
	X(NS_NCAP, "ns-ncap", "NCAP is arg")                                                       \
	X(NS_LBADS, "ns-lbads", "LBADS of the format in use is arg")                               \
	X(NS_MS, "ns-ms", "the metadata size of the format in use is arg")                         \
	X(NS_FLBAS, "ns-flbas", "FLBAS is arg")                                                    \
	X(NS_NLBAF, "ns-nlbaf", "NLBAF is arg")                                                    \
	X(NS_LIST, "ns-list", "the active list is neither sorted nor terminated")                  \
	X(QUEUES, "queues", "grants arg as dword 0 of Number of Queues")                           \
	X(AEN_FLOOD, "aen-flood", "answers each event request at once, for ever")                  \
	X(AEN_VALUE, "aen-value", "answers each event request at once with arg")                   \
	X(LOG_GARBAGE, "log-garbage", "random bytes in place of a log page")                       \
	X(DISC_NUMREC, "disc-numrec", "the discovery log says that it has arg records")            \
	X(DISC_GENCTR, "disc-genctr", "the discovery log's generation changes at each reading")

/* Over RDMA only. A C2HData PDU is an RDMA WRITE there, an R2T an RDMA READ, ICResp the private
 * data of the connection. */
#define TARGET_FAULTS_RDMA(X)                                                                      \
	X(CQE_SIZE, "cqe-size", "sends arg bytes (at most 64) in place of an answer's 16")         \
	X(CQE_SQHD, "cqe-sqhd", "answers with the queue head arg")                                 \
	X(CM_REJECT, "cm-reject", "refuses the connection with status arg; 0 = random bytes")      \
	X(INV_UNASKED, "inv-unasked", "invalidates the command's key though nobody asked")         \
	X(INV_WRONG, "inv-wrong", "invalidates the key of the command arg + 1 before it")          \
	X(KEY_FOREIGN, "key-foreign", "moves data under the last key of another host")             \
	X(KEY_OLD, "key-old", "moves data under the host's key of the command before it")          \
	X(CM_NO_RECEIVE, "cm-no-receive", "accepts, and posts no receive for commands")

#define TARGET_FAULTS(X)                                                                           \
	TARGET_FAULTS_ANSWERS(X)                                                                   \
	TARGET_FAULTS_R2T(X)                                                                       \
	TARGET_FAULTS_PDU(X) TARGET_FAULTS_SETUP(X) TARGET_FAULTS_ADMIN(X) TARGET_FAULTS_RDMA(X)

enum target_fault {
	FAULT_NONE,
#define X(id, name, what) FAULT_##id,
	TARGET_FAULTS(X)
#undef X
		FAULTS_N
};

/* "cqe-wrong-id"; "none", or NULL for what is none of the enum. */
const char *target_fault_to_str(enum target_fault f);
const char *target_fault_what(enum target_fault f);
/* FAULT_NONE for an unknown name. */
enum target_fault target_fault_parse(const char *name);
#endif
