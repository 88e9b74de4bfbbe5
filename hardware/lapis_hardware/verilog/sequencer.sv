// Runs one row: all keys past the score (STEPS clocks each), the gain of the row, all keys again for row sum and
// values, then the steps of the readout.
module sequencer #(
    parameter int KEYS = 65,
    parameter int INDEX_BITS = 7,
    parameter int STEPS = 1,                           // clocks per pair: 1 for codes, the window for spikes
    parameter int WINDOW = 15,
    parameter int STEP_BITS = 4
) (
    input  logic                  clk,
    input  logic                  start,
    input  logic                  ready,               // the affinities are ready to be read
    output logic [INDEX_BITS-1:0] index,               // key, or key and value
    output logic [STEP_BITS-1:0]  step,
    output logic                  score_first,
    output logic                  score_last,
    output logic                  prepare,
    output logic                  mix,
    output logic                  fire,
    output logic                  done
);
  typedef enum logic [2:0] {IDLE, SCORE, DRAIN, PREPARE, MIX, SETTLE, FIRE, LAST} phase_t;
  localparam logic [INDEX_BITS-1:0] LAST_KEY = INDEX_BITS'(KEYS - 1);
  localparam logic [STEP_BITS-1:0] LAST_STEP = STEP_BITS'(STEPS - 1);
  phase_t phase;
  logic [1:0] wait_left;
  assign score_first = phase == SCORE && step == '0;
  assign score_last = phase == SCORE && step == LAST_STEP;
  assign prepare = phase == PREPARE && !ready;
  assign mix = phase == MIX;
  assign fire = phase == FIRE;
  assign done = phase == LAST;
  always_ff @(posedge clk)
    if (start) begin
      phase <= SCORE;
      index <= '0;
      step <= '0;
    end else
      unique case (phase)
        SCORE: begin
          step <= step == LAST_STEP ? '0 : step + 1'b1;
          if (step == LAST_STEP) begin
            index <= index == LAST_KEY ? '0 : index + 1'b1;
            if (index == LAST_KEY) phase <= DRAIN;
          end
          wait_left <= 2'd1;
        end
        DRAIN: begin  // the last distance reaches its register, then the minimum
          wait_left <= wait_left - 1'b1;
          if (wait_left == '0) phase <= PREPARE;
        end
        PREPARE: if (ready) phase <= MIX;
        MIX: begin
          index <= index == LAST_KEY ? '0 : index + 1'b1;
          if (index == LAST_KEY) phase <= SETTLE;
          wait_left <= 2'd3;
        end
        SETTLE: begin  // the last affinity is added, then the exponent is found
          wait_left <= wait_left - 1'b1;
          if (wait_left == '0) phase <= FIRE;
        end
        FIRE: begin
          step <= step + 1'b1;
          if (step == STEP_BITS'(WINDOW - 1)) phase <= LAST;
        end
        LAST: phase <= IDLE;
        default: phase <= IDLE;
      endcase
endmodule
