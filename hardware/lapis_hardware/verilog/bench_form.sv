// Runs rows of real images through one form of the head and compares everything with the integer model. Each file has
// one line per token, per row or per pair; codes are counted from the lowest, values are two's complement.
module bench_form #(
    parameter int FORM = 0,
    parameter bit LEAK = 0,
    parameter int ROWS = 65,
    parameter int CHANNELS = 64,
    parameter int KEYS = 65,
    parameter int WINDOW = 15,
    parameter bit SIGNED_CODES = 1,
    parameter int CODE_BITS = 5,
    parameter int DISTANCES = 1921,
    parameter int DISTANCE_BITS = 11,
    parameter int AFFINITY_BITS = 15,
    parameter int EXPONENT_BITS = 8,
    parameter int VALUE_BITS = 5,
    parameter int SUM_BITS = 26,
    parameter int MASS_BITS = 22,
    parameter int READOUT_BITS = 5,
    parameter int INDEX_BITS = 7,
    parameter int STEP_BITS = 4,
    parameter int SCALE_BITS = 5
) (
    input  logic clk,
    input  int   rows,
    output logic finished
);
  localparam int WIRES = SIGNED_CODES ? 2 * CHANNELS : CHANNELS;
  localparam int OPERAND_BITS = FORM == 2 ? WIRES : CHANNELS * CODE_BITS;
  // No row takes more clocks: every key past the score and the values, every distance of the leak, the readout.
  localparam int LONGEST_ROW = KEYS * (WINDOW + 2) + DISTANCES + WINDOW + 100;
  typedef logic [CHANNELS*CODE_BITS-1:0] codes_t;
  codes_t queries[ROWS];
  codes_t keys[ROWS];
  logic [CHANNELS*VALUE_BITS-1:0] all_values[ROWS];
  logic [DISTANCE_BITS-1:0] distances[ROWS*KEYS];
  logic [AFFINITY_BITS-1:0] affinities[ROWS*KEYS];
  logic [MASS_BITS-1:0] masses[ROWS];
  logic [SCALE_BITS-1:0] scales[ROWS];
  logic [CHANNELS*SUM_BITS-1:0] all_sums[ROWS];
  logic [CHANNELS*READOUT_BITS-1:0] all_codes[ROWS];
  logic [31+EXPONENT_BITS:0] factors[1];
  initial begin
    $readmemh("queries.hex", queries);
    $readmemh("keys.hex", keys);
    $readmemh("values.hex", all_values);
    $readmemh("distances.hex", distances);
    $readmemh("affinities.hex", affinities);
    $readmemh("masses.hex", masses);
    $readmemh("scales.hex", scales);
    $readmemh("sums.hex", all_sums);
    $readmemh("codes.hex", all_codes);
    $readmemh("factor.hex", factors);
  end

  // Which neurons have fired by a step: ON where the code is at least WINDOW - step, OFF where it is at most its mirror.
  function automatic logic [WIRES-1:0] fired(input codes_t codes, input logic [STEP_BITS-1:0] at);
    int code;
    for (int c = 0; c < CHANNELS; c++) begin
      code = 32'(codes[c*CODE_BITS +: CODE_BITS]) - (SIGNED_CODES ? WINDOW : 0);
      fired[c] = code >= WINDOW - int'(at);
      if (SIGNED_CODES) fired[WIRES-CHANNELS+c] = -code >= WINDOW - int'(at);
    end
  endfunction

  function automatic logic [DISTANCE_BITS-1:0] total(input codes_t codes);
    total = '0;
    for (int c = 0; c < CHANNELS; c++) total = total + DISTANCE_BITS'(codes[c*CODE_BITS +: CODE_BITS]);
  endfunction

  logic start, distance_valid, affinity_valid, spikes_valid, done, done_before, busy;
  logic [INDEX_BITS-1:0] index, stage_index;
  logic [STEP_BITS-1:0] step;
  logic [OPERAND_BITS-1:0] query, key;
  logic [DISTANCE_BITS-1:0] distance;
  logic [AFFINITY_BITS-1:0] affinity;
  logic [MASS_BITS-1:0] mass;
  logic [SCALE_BITS-1:0] scale;
  logic [CHANNELS*SUM_BITS-1:0] sums;
  logic [CHANNELS-1:0] spikes_on, spikes_off;
  logic [CHANNELS*READOUT_BITS-1:0] codes;
  int row, token, level, clocks;
  int compared[6];
  int different[6];
  assign token = row - row % KEYS + 32'(index);
  if (FORM == 2) begin : spikes
    assign query = fired(queries[row], step);
    assign key = fired(keys[token], step);
  end else begin : plain
    assign query = queries[row];
    assign key = keys[token];
  end

  attention_head #(.FORM(FORM), .LEAK(LEAK), .OPERAND_BITS(OPERAND_BITS)) head (
      .clk, .start, .index, .step, .query, .key, .query_sum(total(queries[row])), .key_sum(total(keys[token])),
      .factor(factors[0][31:0]), .factor_exponent(factors[0][31+EXPONENT_BITS:32]), .values(all_values[token]),
      .distance_valid, .distance, .affinity_valid, .affinity, .stage_index, .mass, .scale, .sums, .spikes_valid,
      .spikes_on, .spikes_off, .done);

  task automatic compare(input int what, input bit same);
    compared[what] = compared[what] + 1;
    if (!same) begin
      if (different[what] == 0) $display("form %0d row %0d key %0d: quantity %0d differs", FORM, row, stage_index, what);
      different[what] = different[what] + 1;
    end
  endtask

  initial begin
    row = 0;
    clocks = 0;
    busy = 0;
    finished = 0;
    start = 0;
    done_before = 0;
    for (int i = 0; i < 6; i++) begin
      compared[i] = 0;
      different[i] = 0;
    end
  end

  always @(posedge clk) begin
    start <= !busy && !finished;
    if (!finished) busy <= 1;
    clocks <= start || finished ? 0 : clocks + 1;
    if (clocks > LONGEST_ROW) begin
      $display("form %0d row %0d does not end", FORM, row);
      $finish;
    end
    if (start) begin
      codes <= '0;
      level <= WINDOW;
    end
    if (busy && distance_valid) compare(0, distance === distances[row*KEYS+32'(stage_index)]);
    if (busy && affinity_valid) compare(1, affinity === affinities[row*KEYS+32'(stage_index)]);
    if (busy && spikes_valid) begin
      for (int c = 0; c < CHANNELS; c++)
        if (spikes_on[c] || spikes_off[c])
          codes[c*READOUT_BITS +: READOUT_BITS] <= READOUT_BITS'(spikes_on[c] ? level : -level);
      level <= level - 1;
    end
    done_before <= done;
    if (done_before && busy) begin
      compare(2, mass === masses[row]);
      compare(3, scale === scales[row]);
      compare(4, sums === all_sums[row]);
      compare(5, codes === all_codes[row]);
      busy <= 0;
      row <= row + 1;
      if (row + 1 == rows) begin
        finished <= 1;
        for (int i = 0; i < 6; i++) $display("form %0d quantity %0d compared %0d different %0d", FORM, i, compared[i], different[i]);
      end
    end
  end
endmodule
