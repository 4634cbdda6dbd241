-- Change these jobs as a bulk operation asks, and count what became of them: {"ready": 3}. Jobs that are not counted
-- were left unchanged.
create or replace function stepwell.bulk_change(_act text, _options jsonb, _ids uuid[]) returns jsonb
language plpgsql volatile
as $$
begin
  case _act
    when 'retry' then
      return jsonb_build_object('ready', cardinality(
        stepwell.retry(_ids, _from_start => coalesce((_options ->> 'from_start')::boolean, false))
      ));
    when 'cancel' then
      return jsonb_build_object(
        'cancelled', count(*) filter (where c.state = 'cancelled'),
        'running', count(*) filter (where c.state = 'running'),
        'undoing', count(*) filter (where c.state = 'ready')
      )
      from stepwell.cancel(_ids, _options ->> 'reason') c;
    when 'run' then
      return jsonb_build_object('ready', cardinality(stepwell.run_now(_ids)));
    when 'delete' then
      return jsonb_build_object('deleted', cardinality(stepwell.delete_jobs(_ids)));
    when 'move' then
      return jsonb_build_object('moved', cardinality(stepwell.move_jobs(
        _ids, _options ->> 'queue', (_options ->> 'priority')::integer, (_options ->> 'run_at')::timestamptz
      )));
  end case;
end
$$;
