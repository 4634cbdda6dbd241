-- Notify the workers that jobs may be claimed from these queues, from the front: their limits have room again.
create or replace function stepwell.notify_queues(_queues text[]) returns void
language plpgsql volatile
as $$
begin
  perform stepwell.notify('stepwell_ready', left(q.name, 1500)),
    stepwell.notify('stepwell_ready_at', stepwell.place_text(q.name, -32768, 32767, '-infinity'))
  from unnest(_queues) as q (name);
end
$$;
